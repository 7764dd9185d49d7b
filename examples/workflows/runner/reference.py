"""What each variant of a workflow must give: the whole graph in one process, natively, without a
runner's queues and without passing anything between processes.

A function's file is imported and its load() called, as its own process would; outputs go on as they
are, or by one copy between host and GPU. Every variant is run twice: only what repeats natively can
be compared byte for byte.

As a program: reference.py WORKFLOW BATCH VARIANTS DEVICE STANDIN, prints one line of JSON.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import instances
import workflow

LIB = pathlib.Path(__file__).resolve().parents[1] / "lib"


def results(wf, batch=None, variants=None, arm=None, device=0, standin=False, state=None,
            timeout_s=300):
    """({variant: hash}, whether they repeat). `arm`: the native one of an ArmSet, whose environment
    the program gets; without it ours."""
    count = min(variants or wf.variants, wf.variants)
    command = [sys.executable, __file__, str(wf.folder), str(batch or wf.batch), str(count),
               str(device), str(int(standin))]
    env = dict(arm.env("reference") if arm else os.environ, **instances.ENVIRONMENT)
    if state is not None:
        env["WORKFLOW_STATE"] = str(state)
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout_s)
    lines = [line for line in done.stdout.splitlines() if line.startswith("@results ")]
    if done.returncode != 0 or not lines:
        raise workflow.WorkflowError(f"{wf.name}: the reference ended with {done.returncode}; its "
                                     f"stderr ends:\n{done.stderr[-3000:]}")
    told = json.loads(lines[-1].partition(" ")[2])
    return {int(variant): value for variant, value in told["hashes"].items()}, told["repeats"]


def loaded(path, sides, kind):
    """run() of a function's file. A file that several stages name is loaded for each, as each has
    a process of its own."""
    spec = importlib.util.spec_from_file_location(f"function_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(sides[kind].device)


def make_sides(device, standin):
    import passing
    if standin:
        import device_driver as module
    else:
        import device_torch as module
    return {"host": passing.HostSide(), "gpu": module.Side(device)}


def moved(value, source, target, sides):
    """An output as a stage of another kind takes it."""
    if value is None or source == target:
        return value
    if target == "gpu":
        return sides["gpu"].upload(value)
    import numpy
    dtype, shape = sides["gpu"].describe(value)
    array = numpy.empty(shape, dtype)
    sides["gpu"].download(value, array)
    sides["gpu"].synchronise()
    return array


def run_once(wf, runs, sides, params, standin):
    """The hash of one request."""
    import serving
    outputs, found = {}, None
    for name, stage in wf.stages.items():
        inputs = {i.name: moved(outputs[i.stage, i.output], wf.stages[i.stage].kind, stage.kind,
                                sides) for i in stage.inputs}
        skipped = stage.inputs and not stage.join and all(v is None for v in inputs.values())
        made = {} if skipped else runs[name](inputs, wf.stage_params(stage, params, standin))
        sides["gpu"].synchronise()
        if made.get("result") is not None:
            found = serving.digest(made["result"])
        outputs.update({(name, output): made.get(output) for output in stage.outputs})
    return found


def main(folder, batch, variants, device, standin):
    sys.path[:0] = [str(LIB), str(LIB.parent / "standin")]
    standin, wf = standin == "1", workflow.read(folder)
    sides = make_sides(device, standin)
    runs = {name: loaded(instances.program(stage, standin), sides, stage.kind)
            for name, stage in wf.stages.items()}
    rounds = [[run_once(wf, runs, sides, wf.params(variant, int(batch)), standin)
               for variant in range(int(variants))] for _ in range(2)]
    print("@results " + json.dumps({"hashes": dict(enumerate(rounds[0])),
                                    "repeats": rounds[0] == rounds[1]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
