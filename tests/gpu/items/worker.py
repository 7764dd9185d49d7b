"""The worker's side of a measured item: set up, warm up, run blocks of steps on command, hand over
the outputs.

A worker is an ordinary Python GPU program; it knows nothing of Tube. It talks to the runner over
its standard streams, one line each way: it prints `@ready {json}` after the warm-up; on `run N` it
runs N steps and prints `@block {json}` with the latency of each; on `finish` it writes its outputs
as raw bytes and prints `@done {json}` with their hashes. Two workers of one item (native and
through Tube) are thus driven in turns, block by block.
"""
import hashlib
import json
import os
import sys
import time


def say(kind, **values):
    print(f"@{kind} {json.dumps(values)}", flush=True)


def save_outputs(outputs, folder):
    """outputs: name -> bytes-like. Returns name -> [hash, size]; writes each as a file for a later
    diff."""
    hashes = {}
    for name, data in outputs.items():
        data = bytes(data)
        hashes[name] = [hashlib.sha256(data).hexdigest(), len(data)]
        if folder:
            with open(os.path.join(folder, name + ".bin"), "wb") as file:
                file.write(data)
    return hashes


def serve(setup, warmup=8):
    """setup() -> (step, outputs): step() runs one step to its end on the GPU; outputs() gives name
    -> bytes."""
    begin = time.perf_counter()
    folder = os.environ.get("ITEM_OUTPUTS")
    step, outputs = setup()
    for _ in range(warmup):
        step()
    say("ready", pid=os.getpid(), seconds=time.perf_counter() - begin)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            latencies = []
            for _ in range(int(words[1])):
                start = time.perf_counter_ns()
                step()
                latencies.append(time.perf_counter_ns() - start)
            say("block", latency_ns=latencies)
        elif words[0] == "finish":
            say("done", hashes=save_outputs(outputs(), folder))
            return


def torch_setup(seed=1234):
    """torch with deterministic algorithms on and fixed seeds."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # Nobody reads it; the fills are not part of a step.
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.set_grad_enabled(False)
    return torch


def raw(tensor):
    """The bytes of a tensor, whatever its type."""
    import torch
    return tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
