"""The picture of a run of bench/workflows: for each workflow the bars of the split and the curve of
the latencies, an arm each. Needs matplotlib, as bench/draw does."""
import matplotlib.pyplot as plt
from matplotlib.patches import Patch
from workflow_report import PART_WORDS, PARTS

PART_COLORS = {
    "host_to_function": "#e8a33d",
    "function_to_function": "#b4472e",
    "function_to_host": "#f3dcc0",
    "compute": "#2f6f8f",
    "host": "#8c8c8c",
    "queue": "#d4d4d4"
}
ARM_COLORS = {"native": "#8c8c8c", "mps": "#2f6f8f", "tube": "#b4472e"}
DASHES = {"host": "--", "pinned": ":", "files": ":", "ipc": "-"}
OTHER = "#e8a33d"  # Tube with one mechanism set otherwise
ROW_HEIGHT, BAR_HEIGHT = 0.7, 0.2


def bars(axes, arms):
    """A bar an arm, its parts in the order of PARTS."""
    for index, mine in enumerate(arms.values()):
        left = 0.0
        for part in PARTS:
            width = mine["split_ns"].get(part, 0) / 1e6
            axes.barh(index, width, 0.7, left, color=PART_COLORS[part], edgecolor="white",
                      linewidth=0.3)
            left += width
        axes.annotate(f"{left:.0f}" if left >= 100 else f"{left:.1f}", (left, index), (3, 0),
                      textcoords="offset points", va="center", fontsize=6)
    axes.set_yticks(range(len(arms)), list(arms), fontsize=6)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlim(left=0)


def curves(axes, row):
    """Share of the requests that ended within a time, and the SLO."""
    for arm, mine in row["arms"].items():
        kind, _, passing = arm.partition("+")
        curve = mine["curve_ns"]
        shares = [(point + 1) / len(curve) for point in range(len(curve))]
        dash = DASHES.get(passing.partition("+")[0], "-")
        axes.plot([ns / 1e6 for ns in curve], shares, dash, linewidth=1,
                  color=ARM_COLORS.get(kind, OTHER), label=arm)
    axes.axvline(row["slo_ns"] / 1e6, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "25" else "")
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False, fontsize=5)


def drawable(rows):
    """Those whose arms have latencies under the same arrivals."""
    return [row for row in rows if row["arms"] and row["slo_ns"] and not any(
        "rate" in mine for mine in row["arms"].values())]


def draw(result, out):
    """One file; the same result gives the same bytes."""
    rows = drawable(result["rows"])
    plt.rcParams.update({"svg.hashsalt": "tube", "svg.fonttype": "none", "font.size": 7,
                         "font.family": "sans-serif", "axes.spines.top": False,
                         "axes.spines.right": False, "axes.titleweight": "bold",
                         "axes.titlesize": 8, "axes.titlelocation": "left"})
    heights = [ROW_HEIGHT + BAR_HEIGHT * len(row["arms"]) for row in rows]
    figure, axes = plt.subplots(len(rows), 2, figsize=(8.6, sum(heights) + 1.2), squeeze=False,
                                layout="constrained",
                                gridspec_kw={"height_ratios": heights, "width_ratios": [3, 2]})
    for (left, right), row in zip(axes, rows):
        bars(left, row["arms"])
        curves(right, row)
        commit = f" (commit {row['commit']})" if "commit" in row else ""
        left.set_title(f"{row['group']}: {row['name']}{commit}")
    axes[-1][0].set_xlabel("milliseconds of a request under load, along its critical path")
    axes[-1][1].set_xlabel("milliseconds; share of requests within; | the SLO")
    m = result["machine"]
    figure.suptitle(f"{m['gpu']}, driver {m['driver']}, {m['cores']} cores; {result['date'][:10]}",
                    x=0.01, ha="left", fontsize=7)
    figure.legend(handles=[Patch(color=PART_COLORS[part], label=PART_WORDS[part])
                           for part in PARTS], loc="outside lower left", ncols=6, frameon=False,
                  fontsize=6)
    figure.savefig(out, metadata={"Date": None})
