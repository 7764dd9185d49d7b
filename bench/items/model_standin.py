"""Stands in for one of the models of bench/models_memory where PyTorch cannot run: weights, a
workspace that no request needs, and a request that makes and drops a tensor a layer.

model_standin.py NAME --device N. Like PyTorch it keeps what it drops, unless
PYTORCH_NO_CUDA_MEMORY_CACHING is set. Tensors are MiB, but few of their words are looked at.
"""
import ctypes
import os
import pathlib
import sys

import numpy

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "workflows"
sys.path[:0] = [str(EXAMPLES / "lib"), str(EXAMPLES / "standin")]
import device_driver  # noqa: E402
import serving  # noqa: E402

MIB = 1 << 20
WORKSPACE = 8
# MiB of weights, and of each layer's tensor.
MODELS = {"vgg11": (12, (12, 12, 6, 4)), "inception3": (6, (8, 6, 4, 2)),
          "resnet50": (6, (10, 4, 4, 2)), "nasnet": (2, (6, 4, 2)), "speech": (2, (2, 4, 2)),
          "bert": (24, (4, 16, 4))}
WORDS = 64


class Memory:
    """Tensors by their MiB."""

    def __init__(self, device):
        self.device, self.kept = device, {}
        self.keeps = "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ

    def take(self, size):
        kept = self.kept.get(size)
        return kept.pop() if kept else self.device.empty("uint8", [size * MIB])

    def drop(self, size, tensor):
        if self.keeps:
            self.kept.setdefault(size, []).append(tensor)


def head(tensor):
    """The words of a tensor that are computed with."""
    return device_driver.Array(tensor.pointer, "uint32", [WORDS], lambda _: None)


def load(device):
    weights, layers = MODELS[NAME]
    memory = Memory(device)
    kept = [memory.take(weights), memory.take(WORKSPACE)]
    words = numpy.arange(WORDS, dtype=numpy.uint32)
    device.driver("cuMemcpyHtoD_v2", kept[0].pointer, ctypes.c_void_p(words.ctypes.data),
                  ctypes.c_size_t(words.nbytes))

    def run(inputs, params):
        sums = device.upload(numpy.zeros(4, numpy.uint32))
        device.fold(head(kept[0]), sums)
        device.fold(inputs["input"], sums)
        before = None
        for size in layers:
            tensor = memory.take(size)
            device.spread(head(before[1] if before else kept[0]), sums, head(tensor))
            if before:
                memory.drop(*before)
            before = size, tensor
        result = numpy.empty(WORDS, numpy.uint32)
        device.synchronise()
        device.download(head(before[1]), result)
        memory.drop(*before)
        return {"result": result}

    return run


if __name__ == "__main__":
    NAME = sys.argv.pop(1)
    serving.main(load, side=device_driver.Side)
