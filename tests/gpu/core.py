"""The core suite: measured items (two workers driven in turns), eight processes through one proxy,
programs with printed output."""
import difflib
import os
import pathlib
import sys
import time

import report
import tubetest
import turns
from arms import Worker, WorkerError, first_difference

HERE = pathlib.Path(__file__).resolve().parent
# name -> (module that must be importable, script and arguments, steps per block, limit in seconds)
MEASURED = {
    "resnet50_half": ("torchvision", ["resnet50.py", "half"], 8, 120),
    "resnet50_float": ("torchvision", ["resnet50.py", "float"], 8, 120),
    "bert": ("transformers", ["bert.py"], 8, 120),
    "gpt2": ("transformers", ["gpt2.py"], 1, 150),
    "gpt2_graph": ("transformers", ["gpt2_graph.py"], 12, 150),
    "compiled": ("triton", ["compiled.py"], 20, 180),
    "cupy": ("cupy", ["cupy_mix.py"], 20, 120),
    "jax": ("jax", ["jax_function.py"], 20, 150),
    "numba": ("numba", ["numba_kernel.py"], 20, 120),
    "profiled": ("torch", ["profiled.py"], 1, 150),
}
# Programs of tests/programs that are no item by themselves; the last two stand on an H200: the
# driver keeps other threads' copies waiting, too, or the thread that would let an upload go on;
# a context for each request takes minutes; what is free depends on who else is there.
NOT_ALONE = {
    "steady_loop", "free_after_pools", "contexts_by_request", "copies_beside_waits",
    "gate_beside_upload"
}
EXPECTED_CODE = {"exit_early": 7, "graph_exit": 7}
EIGHT = 8


def counters(proxy, pid):
    entry = proxy.function(pid)
    return None if entry is None else {
        "records": entry["records"],
        "round_trips": entry["round_trips"],
        "calls": entry.get("calls", {})
    }


def add_difference(total, before, after):
    if before is None or after is None:
        return
    for key in ("records", "round_trips"):
        total[key] = total.get(key, 0) + after[key] - before[key]
    calls = total.setdefault("calls", {})
    for name, count in after["calls"].items():
        calls[name] = calls.get(name, 0) + count - before["calls"].get(name, 0)


def per_step(total, steps):
    return {"records": total["records"] / steps, "round_trips": total["round_trips"] / steps,
            "calls": {k: v / steps for k, v in total["calls"].items() if v}} if total else {}


def run_blocks(session, native, tube, steps, deadline):
    """Blocks in turns, the arm that begins alternating; counters are read outside the timed
    steps."""
    latencies, total = {"native": [], "tube": []}, {}
    cpus = os.sched_getaffinity(0)
    for block in range(session.blocks):
        for arm in (("native", "tube"), ("tube", "native"))[block % 2]:
            turns.move((native if arm == "native" else tube).pid, turns.cpus_of(block, cpus))
            if arm == "native":
                latencies[arm].append(native.run(steps, deadline))
            else:
                before = counters(session.proxy, tube.pid)
                latencies[arm].append(tube.run(steps, deadline))
                add_difference(total, before, counters(session.proxy, tube.pid))
    return latencies, total


def compare_outputs(native, tube, native_hashes, tube_hashes):
    """Returns a list of differences in words; empty when equal."""
    differences = [] if native_hashes else ["no outputs"]
    for name in sorted(set(native_hashes) | set(tube_hashes)):
        if native_hashes.get(name) != tube_hashes.get(name):
            files = [os.path.join(w.folder, name + ".bin") for w in (native, tube)]
            known = all(os.path.exists(f) for f in files)
            differences.append(
                f"{name}: {first_difference(*files) if known else 'missing in one arm'}")
    return differences


def measured_item(session, name, result):
    module, script, steps, limit = MEASURED[name]
    command = [sys.executable, str(HERE / "items" / script[0]), *script[1:]]
    deadline = session.limit(limit)
    workers = []
    try:
        native = Worker("native", *session.native(command), str(session.work / f"{name}-native"))
        workers.append(native)
        result["seconds_native"] = native.ready(deadline)
        tube = Worker("Tube", *session.tube(command, name), str(session.work / f"{name}-tube"))
        workers.append(tube)
        result["seconds_tube"] = tube.ready(deadline)
        latencies, total = run_blocks(session, native, tube, steps, deadline)
        result["latency"] = report.latency(latencies["native"], latencies["tube"])
        result["per_step"] = per_step(total, sum(map(len, latencies["tube"])))
        differences = compare_outputs(native, tube, native.finish(deadline), tube.finish(deadline))
        result["result"] = "equal" if not differences else "DIFFERENT"
        result["detail"] = "\n".join(differences)
    except WorkerError as error:
        # What does not even start natively says nothing about Tube (a package here that does not
        # fit its numpy, say).
        result["result"] = "FAILED" if "seconds_native" in result else "skipped"
        tails = "\n".join(f"{w.name} stderr ends with:\n{w.stderr_tail()}" for w in workers)
        result[
            "detail"] = f"{error}\n{tails}\nproxy log ends with:\n{session.proxy.log_tail() if session.proxy else '-'}"
    finally:
        for worker in workers:
            worker.close()


def start_eight(session, arm, command, deadline):
    """Eight workers of one arm, all warmed up; returns them and the GPU memory they hold."""
    base = session.nvml.memory_used()
    workers = []
    try:
        for index in range(EIGHT):
            launch = session.native(command) if arm == "native" else session.tube(
                command, f"resnet50-{index}")
            workers.append(
                Worker(f"{arm} {index}", *launch, str(session.work / f"eight-{arm}-{index}")))
        for worker in workers:
            worker.ready(deadline)
    except WorkerError:
        for worker in workers:
            worker.close()
        raise
    used = session.nvml.memory_used()
    return workers, None if used is None or base is None else used - base


def eight_item(session, name, result):
    """Eight ResNet-50 processes at once: natively (for the memory), then through one fresh proxy;
    all must agree."""
    command = [sys.executable, str(HERE / "items" / "resnet50.py"), "half"]
    deadline = session.limit(200)
    session.drop_proxy()
    outcomes, memory, latencies = {}, {"processes": EIGHT}, {}
    workers = []
    try:
        for arm in ("native", "tube"):
            begin = time.monotonic()
            workers, used = start_eight(session, arm, command, deadline)
            result[f"seconds_{arm}"] = time.monotonic() - begin
            memory[f"{arm}_bytes"] = used
            for worker in workers:
                worker.send("run 25")
            latencies[arm] = [[
                value for worker in workers
                for value in worker.expect("block", deadline)["latency_ns"]
            ]]
            outcomes[arm] = [worker.finish(deadline) for worker in workers]
            for worker in workers:
                worker.close()
        wrong = [i for i, hashes in enumerate(outcomes["tube"]) if hashes != outcomes["native"][0]]
        wrong_native = [
            i for i, hashes in enumerate(outcomes["native"]) if hashes != outcomes["native"][0]
        ]
        result["result"] = "equal" if not wrong and not wrong_native else "DIFFERENT"
        result["detail"] = f"through Tube these differ: {wrong}; natively: {wrong_native}"
        result["latency"] = report.latency(latencies["native"], latencies["tube"])
    except WorkerError as error:
        result["result"] = "FAILED"
        result["detail"] = f"{error}\n" + "\n".join(f"{w.name}: {w.stderr_tail(6)}" for w in workers) + \
            f"\nproxy log ends with:\n{session.proxy.log_tail() if session.proxy else '-'}"
    finally:
        result["memory"] = memory
        for worker in workers:
            worker.close()


def program_item(session, name, result):
    """A program that prints its results: standard output and exit code are compared. A fault gets a
    proxy of its own."""
    folder = "gpu" if name.startswith("cudart_") else "programs"
    command = [str(session.layout.build / "tests" / folder / name)]
    if name == "fault":
        session.drop_proxy()
    native = tubetest.run_program(*session.native(command), session.limit(60) - time.monotonic())[0]
    tube = tubetest.run_program(*session.tube(command, name),
                                session.limit(60) - time.monotonic())[0]
    result.update(seconds_native=native.seconds, seconds_tube=tube.seconds)
    if native.code != EXPECTED_CODE.get(name, 0):
        result.update(result="FAILED natively",
                      detail=f"exit code {native.code}\n{native.out[-1500:]}\n{native.err[-1500:]}")
    elif (native.code, native.out) == (tube.code, tube.out):
        result["result"] = "equal"
    else:
        lines = list(
            difflib.unified_diff(native.out.splitlines(), tube.out.splitlines(), "native", "Tube",
                                 lineterm="", n=1))[:60]
        result.update(
            result="DIFFERENT",
            detail=f"exit code {native.code} and {tube.code}\n" + "\n".join(lines) +
            f"\nstderr: {tube.err[-1500:]}\nproxy log ends with:\n{session.proxy.log_tail(12)}")
    if name == "fault":
        session.drop_proxy()


def importable(module):
    command = [
        sys.executable, "-c",
        f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
    ]
    return tubetest.run_program(command, tubetest.base_environment(), 60)[0].code == 0


def all_items(session):
    """(name, function) in the order of importance, so that a short budget cuts the least."""
    items = [(name, measured_item) for name in MEASURED]
    items.insert(5, ("eight_resnet50", eight_item))
    build = session.layout.build
    items[6:6] = [(n, program_item)
                  for n in ("cudart_static", "cudart_shared")
                  if (build / "tests/gpu" / n).exists()]
    programs = sorted(p.name
                      for p in (build / "tests/programs").glob("*")
                      if p.is_file() and not p.suffix and os.access(p, os.X_OK))
    programs = [p for p in programs if p not in NOT_ALONE and p != "fault"
               ] + (["fault"] if "fault" in programs else [])
    return items + [(p, program_item) for p in programs]


def leftovers(session, start):
    """What the last item left in the proxy, in words; also says when the proxy died."""
    if session.proxy is None:
        return []
    if not session.proxy.alive():
        return ["the proxy died under it"]
    try:
        now = session.proxy.counts_back_to(start, 3) if start else session.proxy.counts()
    except (OSError, RuntimeError, ValueError) as error:
        return [f"the proxy does not answer well afterwards: {error}"]
    return [
        f"left behind: {k} {now[k]} (was {start[k]})" for k in start
        if k != "fds" and now.get(k) != start[k]
    ] if start else []


def run_item(session, name, function):
    result = {"item": name, "result": "FAILED"}
    needs = MEASURED.get(name, ("torchvision" if name == "eight_resnet50" else None,))[0]
    if session.deadline - time.monotonic() < 15:
        return dict(result, result="skipped (no time left in --budget)")
    if needs and not importable(needs):
        return dict(result, result=f"skipped (no {needs})")
    begin = time.monotonic()
    start = None
    try:
        if name not in ("eight_resnet50", "fault"):
            start = session.ensure_proxy().counts()
        function(session, name, result)
        result["notes"] = leftovers(session, start)
    except Exception as error:  # One item must not end the run.
        result[
            "detail"] = f"{type(error).__name__}: {error}\n{session.proxy.log_tail() if session.proxy else ''}"
    result["seconds_item"] = time.monotonic() - begin
    print(f"{name}: {result['result']} ({result['seconds_item']:.1f} s)", flush=True)
    if result["result"] not in ("equal",) and result.get("detail"):
        print("  " + "\n  ".join(result["detail"].splitlines()[-40:]), flush=True)
    return result
