"""Host memory that a proxy registered with the driver during a run: how often, and the longest.

While it does, all functions' calls may stand; so a row with a bad p99 says with these whether that
was why.
"""


def counts(arm):
    """(how often, how often while a request waited, the longest ones in ms) since the arm's proxy
    began; None: the arm has no proxy."""
    if not hasattr(arm, "proxy"):
        return None
    found = arm.proxy.request("copies").get("registrations", [])
    return {"registered": sum(each["registered"] for each in found),
            "registered_on_request": sum(each["on_request"] for each in found
                                         if each["who"] != "programs' own"),
            "registered_longest_ms": max([each["longest_ms"] for each in found], default=0),
            "unregistered_longest_ms": max([each["longest_removal_ms"] for each in found],
                                           default=0)}


def since(before, after):
    """Of a row: counts are the row's own, the longest are those of the proxy's life so far."""
    if before is None or after is None:
        return {}
    own = ("registered", "registered_on_request")
    return {key: value - before[key] if key in own else value for key, value in after.items()}
