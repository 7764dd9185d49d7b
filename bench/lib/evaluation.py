"""The tables of docs/evaluation.md from result files: a table a paper, and what hurts today."""
import workflow_report
from papers import edas, faastube, fluidfaas, nothing, streambox

PAPERS = (streambox, faastube, edas, fluidfaas)
HEAD = ["id", "the paper says", "its setting", "our bench", "ours now", "what is missing"]
HURTS = "hurts"
NOTHING, NOT_YET = "-", "not measured yet"


def markdown(head, lines):
    return "\n".join([
        "| " + " | ".join(head) + " |", "|" + "---|" * len(head),
        *("| " + " | ".join(cells) + " |" for cells in lines)
    ])


def rows(paper, results):
    """[cells] of a paper's headlines."""
    found = []
    for headline in paper.HEADLINES:
        bench = ", ".join(f"`{name.strip()}`" for name in headline.bench.split(";"))
        bench += f": {headline.figure}" if headline.figure else ""
        found.append([
            headline.key, headline.claim, headline.setting or "-",
            bench if headline.bench != "-" else "-",
            headline.ours(results) or (NOTHING if headline.ours is nothing else NOT_YET),
            headline.missing
        ])
    return found


def answered(results):
    """(headlines that have a figure of ours, all headlines)."""
    cells = [row for paper in PAPERS for row in rows(paper, results)]
    return sum(row[4] not in (NOTHING, NOT_YET) for row in cells), len(cells)


def tables(results):
    """mark -> text of everything that is written between marks."""
    found = {paper.MARK: markdown(HEAD, rows(paper, results)) for paper in PAPERS}
    found[HURTS] = hurts(results)
    return found


def hurts(results):
    """For each workflow the three largest shares of time, and what should remove them."""
    result = results.get("workflows")
    rows_of = result["rows"] if result else []
    latencies = [row for row in rows_of if not row["name"].startswith("highest rate")]
    lines = workflow_report.largest_shares(latencies)
    if not lines:
        return "No run of `bench/workflows` on a GPU is kept yet."
    return markdown(workflow_report.SHARES_HEAD, lines)


def begin_mark(name):
    return f"<!-- {name}: written by bench/evaluate -->"


def end_mark(name):
    return f"<!-- end of {name} -->"


def written(text, results):
    """The page with its tables anew; ValueError names a mark that it lacks."""
    for name, table in tables(results).items():
        before, begin, rest = text.partition(begin_mark(name))
        _, end, after = rest.partition(end_mark(name))
        if not begin or not end:
            raise ValueError(f"{begin_mark(name)} or {end_mark(name)} is missing")
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text
