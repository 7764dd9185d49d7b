"""The functions of bench/faas12: what each takes, how often it is asked, and its input's bytes.

A function's input lies in memory of ours that it maps, as one function's output is given to the
next (examples/workflows/lib/passing.py): the same bytes in every request, so that all its results
are equal.
"""
import array
import mmap
import os
import pathlib
import random

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "functions"
# name -> (type, shape) of its input. EDAS, table 1; bloom-2.8B-FP16 is left out, of llama only the
# bytes are there, behind an option.
INPUTS = {
    "vgg11": ("float32", [1, 3, 224, 224]),
    "inception3": ("float32", [1, 3, 299, 299]),
    "resnet50": ("float32", [1, 3, 224, 224]),
    "nasnet": ("float32", [1, 3, 224, 224]),
    "speech": ("float32", [1, 100, 494]),
    "s2s": ("int64", [1, 32]),
    "bert": ("int64", [1, 128]),
    "lbm": ("float32", [20, 150, 120, 120]),
    "mrif": ("float32", [1_500_000, 3]),
    "tpacf": ("float32", [97, 24_000, 3]),
    "llama": ("int64", [1, 128])
}
LARGE = ("llama",)
NAMES = tuple(name for name in INPUTS if name not in LARGE)
A_MINUTE = (20, 200)  # requests; each function's own number is drawn from these
FEW_A_MINUTE = (10, 20)  # of further copies of a function
TRACES = tuple(f"azure:{row}" for row in range(5, 17))  # periodic, bursty and steady functions
ITEM = {"float32": 4, "int64": 8}
BLOCK = 1 << 16  # values that are drawn; longer inputs repeat them


def copies(names, count):
    """The names of `count` functions of each: bert, bert-2, .."""
    return [name if number == 1 else f"{name}-{number}"
            for number in range(1, count + 1) for name in names]


def base(name):
    """Which function a copy is of."""
    return name.partition("-")[0]


def rates(names, seed):
    """name -> requests a minute, spread evenly over the orders of magnitude of their bounds."""
    chosen, found = random.Random(f"rates {seed}"), {}
    for name in names:
        low, high = A_MINUTE if name == base(name) else FEW_A_MINUTE
        found[name] = low * (high / low)**chosen.random()
    return found


def count_of(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def values(dtype, count, seed):
    """Bytes of that many values: floats from 0 to 1, or words' numbers."""
    chosen = random.Random(f"input {seed}")
    few = min(count, BLOCK)
    if dtype == "float32":
        block = array.array("f", (chosen.random() for _ in range(few))).tobytes()
    else:
        block = array.array("q", (chosen.randrange(1 << 20) for _ in range(few))).tobytes()
    size = count * ITEM[dtype]
    return (block * -(-size // len(block)))[:size]


class Input:
    """An input in shared memory; its handle is what functions are told."""

    def __init__(self, name, dtype, shape):
        self.fd = os.memfd_create(f"input-{name}", os.MFD_CLOEXEC)
        data = values(dtype, count_of(shape), name)
        os.ftruncate(self.fd, max(len(data), mmap.PAGESIZE))
        with open(os.dup(self.fd), "wb") as file:
            file.write(data)
        self.handle = {"way": "host", "key": f"{os.getpid()}.{self.fd}.input", "dtype": dtype,
                       "shape": shape}

    def close(self):
        os.close(self.fd)
