"""The report of tests/gpu/run: a table for people, the same as JSON, and the tails of what
failed."""
import json
import os
import statistics

import turns

TARGET_RATIO = 1.15
TARGET_MEMORY = 0.60
TARGET_ITEMS = ("resnet50_half", "resnet50_float", "bert", "gpt2", "gpt2_graph")


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def latency(native, tube):
    """Each arm's blocks of step latencies in nanoseconds, in the order they ran. Median and p99 of
    both in microseconds, and the ratio (turns.py)."""
    out = {}
    for name, blocks in (("native", native), ("tube", tube)):
        values = [value for block in blocks for value in block]
        out[name] = {
            "p50_us": percentile(values, 0.5) / 1e3,
            "p99_us": percentile(values, 0.99) / 1e3,
            "steps": len(values),
            "blocks_us": [statistics.median(block) / 1e3 for block in blocks]
        }
    out["ratio_p50"] = turns.ratio(out["native"]["blocks_us"], out["tube"]["blocks_us"])
    out["ratio_p99"] = out["tube"]["p99_us"] / out["native"]["p99_us"]
    return out


def number(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def table(results):
    rows = [("item", "result", "s native", "s Tube", "p50 us N", "p50 us T", "ratio", "p99 us N",
             "p99 us T", "records/step", "trips/step")]
    for r in results:
        lat, step = r.get("latency"), r.get("per_step", {})
        rows.append(
            (r["item"], r["result"], number(r.get("seconds_native")), number(r.get("seconds_tube")),
             number(lat and lat["native"]["p50_us"],
                    "{:.0f}"), number(lat and lat["tube"]["p50_us"],
                                      "{:.0f}"), number(lat and lat["ratio_p50"], "{:.3f}"),
             number(lat and lat["native"]["p99_us"],
                    "{:.0f}"), number(lat and lat["tube"]["p99_us"], "{:.0f}"),
             number(step.get("records"), "{:.1f}"), number(step.get("round_trips"), "{:.2f}")))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(
        cell.ljust(width) if i < 2 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths)))
                     for row in rows)


def memory_lines(results):
    lines = []
    for r in results:
        m = r.get("memory")
        if m and m.get("native_bytes") and m.get("tube_bytes"):
            share = m["tube_bytes"] / m["native_bytes"]
            lines.append(
                f"GPU memory, {m['processes']} ResNet-50 processes: native {m['native_bytes'] / 2**20:.0f} MiB, through Tube "
                f"{m['tube_bytes'] / 2**20:.0f} MiB ({share:.0%}; target at most {TARGET_MEMORY:.0%}: "
                f"{'reached' if share <= TARGET_MEMORY else 'NOT reached'})")
    return lines


def target_lines(results):
    lines = []
    for r in results:
        if r["item"] not in TARGET_ITEMS or "latency" not in r:
            continue
        ratio, trips = r["latency"]["ratio_p50"], r.get("per_step", {})
        others = {k: v for k, v in trips.get("calls", {}).items() if v >= 0.01}
        lines.append(
            f"{r['item']}: latency {ratio:.3f}x native (target {TARGET_RATIO}: {'reached' if ratio <= TARGET_RATIO else 'NOT reached'}); "
            f"{number(trips.get('round_trips'))} round trips a step; calls a step: " + ", ".join(
                f"{k} {v:.2f}" for k, v in sorted(others.items(), key=lambda kv: -kv[1])[:12]))
    return lines


WELL = ("equal", "within native's own difference", "skipped", "native fails")


def is_well(result):
    """Nothing in it speaks against Tube: equal, or nothing to compare with natively (then it is not
    counted as equal)."""
    return result["result"].split(" (")[0] in WELL


def count_words(words):
    counts = {}
    for word in words:
        counts[word.split(" (")[0]] = counts.get(word.split(" (")[0], 0) + 1
    return ", ".join(f"{n} {k}" for k, n in sorted(counts.items()))


def first_line(result):
    lines = (result.get("detail") or "").strip().splitlines()
    return f": {lines[0][:200]}" if lines else ""


def case_table(results):
    """Items of many cases, one line each, and below the cases that are not equal."""
    rows, others = [("item", "result", "s", "cases")], []
    for r in results:
        name = f"{r['suite']}/{r['item']}"
        cases = r.get("cases", [])
        rows.append((name, r["result"], number(r.get("seconds_item"),
                                               "{:.1f}"), count_words(c["result"] for c in cases)))
        others += [
            f"  {name}.{c['case']}: {c['result']}{first_line(c)}" for c in cases
            if c["result"] != "equal"
        ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]), row[3]])
        for row in rows
    ]
    return [
        *lines, "",
        "cases: " + count_words(c["result"] for r in results for c in r.get("cases", [])), *others,
        ""
    ]


def text(header, results):
    single, many = [r for r in results if "cases" not in r], [r for r in results if "cases" in r]
    parts = [
        f"Tube on a GPU: commit {header['commit']}, {header['gpu']}, driver {header['driver']}, {header['date']}",
        ""
    ]
    if single:
        parts += [
            "s: seconds from process start to the end of its warm-up (workers) or to its end (programs).",
            "p50/p99: one step, arms interleaved block by block in one run; ratio: the median of what neighbouring blocks say.",
            "",
            table(single), "", *memory_lines(single), *target_lines(single), ""
        ]
    parts += case_table(many) if many else []
    parts.append("items: " + count_words(r["result"] for r in results))
    for r in results:
        for note in r.get("notes", []):
            parts.append(f"{r['item']}: {note}")
    return "\n".join(parts) + "\n"


def failures(results):
    blocks = []
    for r in results:
        if r["result"] != "equal" and r.get("detail"):
            blocks.append(
                f"== {r.get('suite', 'core')}/{r['item']}: {r['result']}\n{r['detail']}\n")
        for c in r.get("cases", []):
            if c["result"] != "equal" and c.get("detail"):
                blocks.append(
                    f"-- {r.get('suite', 'core')}/{r['item']}.{c['case']}: {c['result']}\n{c['detail']}\n"
                )
    return "\n".join(blocks)


def write(folder, header, results):
    os.makedirs(folder, exist_ok=True)
    for name, content in (("report.txt", text(header,
                                              results)), ("failures.log", failures(results)),
                          ("report.json", json.dumps(dict(header, results=results), indent=1))):
        if content:
            with open(os.path.join(folder, name), "w") as file:
                file.write(content)
