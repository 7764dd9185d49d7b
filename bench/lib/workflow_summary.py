"""What the six workflows say together: one row for the table of figures.

A figure of "the six workflows" is the median over those that ran in both arms; its span is in
docs/evaluation.md. Passing is what a request waits for its data: to the functions, between them and
back. Compute apart: without the functions' own work on GPU and host, which no passing changes.
"""
import statistics

BASE, STORE, MPS = "native+host", "tube+store", "mps+host"
GROUP, NAME = "six workflows", "tube+store against native+host"
PASSING = ("host_to_function", "function_to_function", "function_to_host")
OWN_WORK = ("compute", "host")


def passing_ns(values):
    return sum(values["split_ns"].get(part, 0) for part in PASSING)


def p99_apart_ns(values):
    """Of the slow requests, all that is not the functions' own work."""
    own = sum(values["tail_split_ns"].get(part, 0) for part in OWN_WORK)
    return max(0, sum(values["tail_split_ns"].values()) - own)


# What is compared, and whether the rows are those of the rate's search.
VALUES = {
    "passing_over": (passing_ns, False),
    "p99_over": (lambda values: values["p99_ns"], False),
    "p99_apart_over": (p99_apart_ns, False),
    "rate_over": (lambda values: values.get("rate_per_s"), True),
}


def compared(rows, mine, base, key):
    value, searched = VALUES[key]
    found = []
    for row in rows:
        if row["name"].startswith("highest rate") != searched or not {mine, base} <= set(row["arms"]):
            continue
        of, over = value(row["arms"][mine]), value(row["arms"][base])
        if of is not None and over:
            found.append(of / over)
    return statistics.median(found) if found else None


def row(result):
    """None when no workflow ran by the store."""
    rows = [each for each in result["rows"] if each["group"] != GROUP]
    values = {key: compared(rows, STORE, BASE, key) for key in VALUES}
    values["rate_over_mps"] = compared(rows, STORE, MPS, "rate_over")
    values = {key: value for key, value in values.items() if value is not None}
    return {"group": GROUP, "name": NAME, "arms": {"tube": values}, "wrong": []} if values else None


def with_summary(results):
    """results: bench name -> result; the same with the row, if there is one."""
    found = row(results["workflows"]) if "workflows" in results else None
    if found is None:
        return results
    whole = results["workflows"]
    return dict(results, workflows=dict(whole, rows=[*whole["rows"], found]))
