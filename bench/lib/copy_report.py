"""The text of a copy bench: what each copy takes and brings in each arm, and what a victim sees."""
import figures
import result_file
from result_file import short, us


def over_native(row, arm):
    """How many times native's speed."""
    ratio = result_file.ratio(row, arm)
    return short(1 / ratio) if ratio else "-"


def rate(values, key):
    return short(values[key] / 1e9) if values and values.get(key) else "-"


def copies(rows, arms):
    """Microseconds, gigabytes a second and how many times native's speed; CPU seconds."""
    others = [a for a in arms if a != "native"]
    table = [["", *[f"{a} p50 us" for a in arms], *[f"{a} GB/s" for a in arms],
              *[f"{a} speed" for a in others], *[f"{a} p99 us" for a in arms],
              *[f"{a} cpu s/GB" for a in arms]]]
    for row in rows:
        values = [row["arms"].get(a) for a in arms]
        table.append([row["name"], *[us(v, "p50_ns") for v in values],
                      *[rate(v, "bytes_per_s") for v in values],
                      *[over_native(row, a) for a in others], *[us(v, "p99_ns") for v in values],
                      *[short(figures.cpu_per_gb(v)) for v in values]])
    return result_file.layout_table(table)


def victims(rows, arms):
    """A victim's times, its p99 in times of that alone, all bytes a second, and in times of those
    that the others move alone."""
    table = [["", *[f"{a} {what}" for what in ("p50 us", "p99 us", "p99/alone", "GB/s", "kept")
                    for a in arms]]]
    for row in rows:
        values = [row["arms"].get(a) for a in arms]
        table.append([row["name"], *[us(v, "p50_ns") for v in values],
                      *[us(v, "p99_ns") for v in values],
                      *[short((v or {}).get("p99_over_alone")) for v in values],
                      *[rate(v, "all_per_s") for v in values],
                      *[short((v or {}).get("kept")) for v in values]])
    return result_file.layout_table(table)


def text(result):
    arms = list(result["arms"])
    lines = [
        *result_file.head(result),
        "Arms in turns. p50 and p99 of single copies, each waited for, in microseconds; GB/s: bytes",
        "of a copy by its median time, beside others all bytes moved meanwhile; speed: times",
        "native's, the median of what neighbouring blocks say; cpu: CPU seconds per",
        "gigabyte of program and server; kept: all bytes against those that the others move alone.",
        ""
    ]
    for group in dict.fromkeys(row["group"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["group"] == group]
        beside = any({"p99_over_alone", "all_per_s"} & set(v)
                     for row in rows for v in row["arms"].values())
        lines += [f"== {group}", *(victims if beside else copies)(rows, arms), ""]
    return "\n".join(lines + result_file.tail(result)) + "\n"
