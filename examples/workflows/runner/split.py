"""Where a request's time went, along its critical path.

From the last stage back: before a stage lies the one that its inputs waited for longest, over
stages that were skipped. On that path each nanosecond belongs to one part, so the parts sum to
`ended - arrived` exactly:

    queue                 from arrival, or from the outputs before, until the function starts on it
    host_to_function      a host function's outputs out, a GPU function's inputs in
    function_to_function  between two GPU functions, both sides
    function_to_host      a GPU function's outputs out, a host function's inputs in
    compute               inputs there until computed, on the GPU
    host                  the same of host functions, and what passes between two of them

Standard library only.
"""
PARTS = ("queue", "host_to_function", "function_to_function", "function_to_host", "compute", "host")
PASSING = {("host", "gpu"): "host_to_function", ("gpu", "gpu"): "function_to_function",
           ("gpu", "host"): "function_to_host", ("host", "host"): "host"}


def before(wf, record, stage):
    """Names of the stages that ran and whose end this one waited for."""
    found = set()
    for each in wf.stages[stage].inputs:
        found |= {each.stage} if each.stage in record.stages else before(wf, record, each.stage)
    return found


def critical_path(wf, record):
    """Names of the stages on the critical path, first to last."""
    path = [max(record.stages, key=lambda name: record.stages[name]["outputs"])]
    while earlier := before(wf, record, path[0]):
        path.insert(0, max(earlier, key=lambda name: record.stages[name]["outputs"]))
    return path


def passing(wf, one, other):
    """The part that data from one stage to the other belongs to; None stands for outside, where
    a request comes from and its result goes."""
    kinds = [wf.stages[name].kind if name else "host" for name in (one, other)]
    return PASSING[tuple(kinds)]


def of(wf, record):
    """{part: nanoseconds} of a request that ran to its end."""
    parts = dict.fromkeys(PARTS, 0)
    path = critical_path(wf, record)
    at = record.arrived_ns
    for earlier, name, later in zip([None, *path], path, [*path[1:], None]):
        stamps = record.stages[name]
        own = "compute" if wf.stages[name].kind == "gpu" else "host"
        for part, until in (("queue", stamps["start"]), (passing(wf, earlier, name),
                            stamps["inputs"]), (own, stamps["computed"]),
                            (passing(wf, name, later), stamps["outputs"])):
            parts[part] += until - at
            at = until
    parts["queue"] += record.ended_ns - at
    return parts


def words(parts):
    """One line: milliseconds of each part, the largest first, with its share."""
    total = max(1, sum(parts.values()))
    shown = sorted(parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name.replace('_', ' ')} {ns / 1e6:.1f} ms ({100 * ns / total:.0f}%)"
                     for name, ns in shown if ns)
