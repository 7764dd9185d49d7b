"""Counts of a run against those that are written down: how many records and round trips an
operation costs, and by which calls.

What the simulated GPU can tell of a fast path. A number in the table may be exact or [least, most]
per operation; a call that is not named must not have happened (more often than once in a hundred
operations).
"""
import json

RARE = 0.01
ROUNDING = 0.005


def fits(expected, value):
    low, high = expected if isinstance(expected, list) else (expected, expected)
    return low - ROUNDING <= value <= high + ROUNDING


def row_problems(label, counted, expected):
    for key in ("records", "round_trips"):
        value = counted.get(key, 0)
        if key in expected and not fits(expected[key], value):
            yield f"{label}: {value:.3f} {key} per operation, expected {expected[key]}"
    calls, wanted = counted.get("calls", {}), expected.get("calls", {})
    for call in sorted(set(calls) | set(wanted)):
        value = calls.get(call, 0)
        if call not in wanted and value > RARE:
            yield f"{label}: {value:.3f} {call} per operation, expected none"
        if call in wanted and not fits(wanted[call], value):
            yield f"{label}: {value:.3f} {call} per operation, expected {wanted[call]}"


def counted_rows(result, group):
    """[(name, what was counted)]. Without the question that a waiter asks who has slept for 20 ms:
    it says how busy the machine is."""
    found = []
    for row in result["rows"]:
        counted = row["arms"].get("tube", {}).get("per_call")
        if row["group"] == group and counted is not None:
            calls = {k: v for k, v in counted.get("calls", {}).items() if k != "tubeStreamProbe"}
            probes = counted.get("calls", {}).get("tubeStreamProbe", 0)
            found.append((row["name"],
                          dict(counted, calls=calls, records=counted.get("records", 0) - probes,
                               round_trips=counted.get("round_trips", 0) - probes)))
    return found


def update(result, table, group):
    """Writes into `table` what was counted wherever that is not what stands there; ranges that fit
    stay."""
    for name, counted in counted_rows(result, group):
        old = table.get(name, {"calls": {}})
        if name in table and not list(row_problems(name, counted, old)):
            continue
        calls = {
            k: old["calls"][k] if k in old["calls"] and fits(old["calls"][k], v) else rounded(v)
            for k, v in counted.get("calls", {}).items()
            if v > RARE
        }
        ends = [[
            sum(v[end] if isinstance(v, list) else v for v in calls.values()) for end in (0, 1)
        ],
                rounded(counted.get("records", 0))]
        table[name] = {
            "records": ends[0] if ends[0][0] != ends[0][1] else ends[1],
            "round_trips": rounded(counted.get("round_trips", 0)),
            "calls": calls
        }


def rounded(value):
    """Whole numbers as they are; a signal now and then (one for a burst) is none to one in
    three."""
    return int(value) if value == int(value) else [0, 0.34] if value < 0.34 else round(value, 2)


def text(tables):
    """The file: one operation a line."""
    groups = [
        f'"{name}": {{\n' + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}"
                                       for k, v in table.items()) + "\n}"
        for name, table in tables.items()
    ]
    return "{\n" + ",\n".join(groups) + "\n}\n"


def check_or_write(result, path, bench, group, write):
    """Problems in words; with `write` there are none and the file says what was counted."""
    tables = json.loads(path.read_text())
    if not write:
        return problems(result, tables[bench], group)
    update(result, tables[bench], group)
    path.write_text(text(tables))
    return []


def problems(result, table, group):
    """In words; empty when every row of this group is in the table and as written there."""
    found, seen = [], 0
    for name, counted in counted_rows(result, group):
        seen += 1
        if name not in table:
            found.append(f"{name}: not in the table of expected counts")
            continue
        found += row_problems(name, counted, table[name])
    return found or ([] if seen else ["no counts: nothing ran through Tube"])
