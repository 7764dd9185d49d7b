"""Copies as PyTorch makes them, for bench/pageable: `cuda` moves a model with the sizes of VGG-11's
weights to the GPU, `cpu` brings a tensor of 256 MiB back. A step is that one call and the wait for
its end; that the model is on the host again, and memory given back, is not timed.

  torch_copies.py cuda|cpu          ITEM_DEVICE=cpu rehearses it without a GPU, ITEM_SMALL=1 with
                                    little memory
"""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu" / "items"))
import worker  # noqa: E402

CHANNELS = (3, 64, 128, 256, 256, 512, 512, 512, 512)
LINEARS = ((25088, 4096), (4096, 4096), (4096, 1000))
DEVICE = os.environ.get("ITEM_DEVICE", "cuda")
SMALL = 64 if os.environ.get("ITEM_SMALL") else 1


def wait(torch):
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def vgg11(torch):
    """VGG-11's parameters as a module; nobody runs it."""
    layers = [torch.nn.Conv2d(a, b, 3) for a, b in zip(CHANNELS, CHANNELS[1:])]
    layers += [torch.nn.Linear(a // SMALL, b) for a, b in LINEARS]
    return torch.nn.Sequential(*layers)


class Model:
    """model.cuda() of weights that are on the host again before each step."""

    def __init__(self, torch):
        self.torch, self.model = torch, vgg11(torch)
        self.weights = [p.data for p in self.model.parameters()]

    def before(self):
        for parameter, weight in zip(self.model.parameters(), self.weights):
            parameter.data = weight

    def step(self):
        self.model.to(DEVICE)
        wait(self.torch)

    def outputs(self):
        words = [p.data.view(self.torch.int32) for p in self.model.parameters()]
        sums = [int(w.sum(dtype=self.torch.int64)) for w in words]
        equal = all(self.torch.equal(p.data.cpu(), weight)
                    for p, weight in zip(self.model.parameters(), self.weights))
        return {"sums": str(sums).encode()} if equal else sys.exit("a weight is wrong on the GPU")


class Tensor:
    """.cpu() of a tensor, the result before given back."""

    def __init__(self, torch):
        self.torch = torch
        self.numbers = torch.arange((64 << 20) // SMALL, device=DEVICE, dtype=torch.int32)
        self.found = None

    def before(self):
        self.found = None

    def step(self):
        self.found = self.numbers.to("cpu", copy=True)

    def outputs(self):
        right = self.torch.arange(self.numbers.numel(), dtype=self.torch.int32)
        equal = self.torch.equal(self.found, right)
        return {"equal": b"yes"} if equal else sys.exit("the tensor is wrong on the host")


def timed(item, steps):
    latencies = []
    for _ in range(steps):
        item.before()
        begin = time.perf_counter_ns()
        item.step()
        latencies.append(time.perf_counter_ns() - begin)
    return latencies


def main():
    torch = worker.torch_setup()
    item = {"cuda": Model, "cpu": Tensor}[sys.argv[1]](torch)
    timed(item, 2)
    worker.say("ready", pid=os.getpid())
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            worker.say("block", latency_ns=timed(item, int(words[1])))
        elif words[0] == "finish":
            worker.say("done", hashes=worker.save_outputs(item.outputs(), None))
            return


main()
