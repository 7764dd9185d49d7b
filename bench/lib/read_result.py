"""Reads result files of every kind into the form of result_file.py: the benches', tests/gpu/run's
report.json, older calls.json."""
import json
import pathlib


def from_calls(old):
    """calls.json before the benches had one form: operation -> arm -> values."""
    rows = [{
        "group": "one client",
        "name": name,
        "arms": arms
    } for name, arms in old["calls"].items()]
    return {
        "bench": "calls",
        "commit": old["commit"],
        "date": "",
        "backend": old["backend"],
        "machine": {},
        "rows": rows
    }


def from_report(report):
    """report.json of tests/gpu/run: the items with step latencies."""
    rows = []
    for item in report["results"]:
        latency = item.get("latency")
        if not latency:
            continue
        arms = {
            arm: {
                "p50_ns": latency[arm]["p50_us"] * 1e3,
                "p99_ns": latency[arm]["p99_us"] * 1e3,
                "samples": latency[arm]["steps"]
            } for arm in ("native", "tube")
        }
        for arm in arms:
            if "blocks_us" in latency[arm]:
                arms[arm]["blocks_ns"] = [block * 1e3 for block in latency[arm]["blocks_us"]]
        if item.get("per_step"):
            arms["tube"]["per_call"] = item["per_step"]
        rows.append({"group": "steps", "name": item["item"], "arms": arms})
    return {
        "bench": "report",
        "commit": report["commit"],
        "date": report.get("date", ""),
        "backend": "driver",
        "machine": {
            "gpu": report.get("gpu"),
            "driver": report.get("driver")
        },
        "rows": rows
    }


def coldstart_values(figures):
    return {
        "p50_ns": figures["median_ms"] * 1e6,
        "p99_ns": figures["p99_ms"] * 1e6,
        "max_ns": figures["max_ms"] * 1e6,
        "samples": figures["samples"]
    }


def from_coldstart(data):
    """coldstart.json: the totals of each program, and the medians of its phases."""
    rows = []
    for part in data["results"]:
        group = f"{part['program']}, {part['copies']} at once"
        for name in ("total", "slowest", "exec_to_result", "exec_to_end", "model"):
            arms = {
                arm: coldstart_values(values[name])
                for arm, values in part["arms"].items()
                if name in values
            }
            if arms:
                rows.append({"group": group, "name": name, "arms": arms})
        for name in dict.fromkeys(
                n for values in part["arms"].values() for n in values["phases_ms"]):
            arms = {
                arm: {
                    "p50_ns": values["phases_ms"][name] * 1e6
                } for arm, values in part["arms"].items() if name in values["phases_ms"]
            }
            rows.append({"group": group, "name": f"phase {name}", "arms": arms})
    machine = data["machine"]
    return {
        "bench": "coldstart",
        "commit": machine["commit"],
        "date": "",
        "backend": machine["backend"],
        "machine": machine,
        "rows": rows
    }


def normal(data):
    """The rows form of any of them; ValueError when it is none."""
    if "rows" in data:
        return data
    if "calls" in data:
        return from_calls(data)
    if "results" in data and "gpu" in data:
        return from_report(data)
    if "results" in data and "machine" in data:
        return from_coldstart(data)
    raise ValueError("no result of a bench or of tests/gpu/run")


def read(path):
    """A file, or every result file below a folder: bench name -> result."""
    path = pathlib.Path(path)
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    found = {}
    for file in files:
        try:
            result = normal(json.loads(file.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if path.is_file():
                raise ValueError(f"{file}: {error}") from None
            continue
        found[result["bench"]] = result
    if not found:
        raise ValueError(f"{path}: no result files")
    return found


def of_gpu(results):
    """Those of read() that a GPU gave."""
    return {bench: result for bench, result in results.items() if result["backend"] == "driver"}


def kept(root):
    """What read() gives for each folder root/*/*, oldest first. A file without a date has its
    folder's."""
    found = []
    for folder in sorted(folder for folder in pathlib.Path(root).glob("*/*") if folder.is_dir()):
        try:
            found.append(read(folder))
        except ValueError:
            continue  # a report in words alone
    return sorted(found, key=lambda results: max(result["date"] for result in results.values()))


def of_tube(row):
    """Whether Tube has an arm in it, with whatever settings."""
    return any(arm.split(":")[0].startswith("tube") for arm in row["arms"])


def merge(several):
    """What read() gave for several paths, as one: each row as the last run that has it says, but a
    run without an arm of Tube's in a group does not replace one with it, nor a row whose arm could
    not be measured one that has it. A row says its commit."""
    merged = {}
    for results in several:
        for bench, result in results.items():
            if any("group" not in row for row in result["rows"]):
                continue  # bench/pass and bench/store have tables of their own
            kept = merged.setdefault(bench, dict(result, rows={}))["rows"]
            for group in dict.fromkeys(row["group"] for row in result["rows"]):
                new = {
                    (group, row["name"]): {
                        **row, "commit": result["commit"][:7]
                    } for row in result["rows"] if row["group"] == group
                }
                old = {key: row for key, row in kept.items() if key[0] == group}
                if not any(map(of_tube, new.values())) and any(map(of_tube, old.values())):
                    continue
                lost = set(result.get("missing", {}))
                kept.update({
                    key: row for key, row in new.items()
                    if not lost & (set(old.get(key, row)["arms"]) - set(row["arms"]))
                })
    return {
        bench: dict(result, rows=list(result["rows"].values())) for bench, result in merged.items()
    }
