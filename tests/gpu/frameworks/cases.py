"""Cases of a framework: registered by a decorator, run in order, each announced, its results
written as files of bytes.

    @cases.case
    def product(): return {"c": a @ b}        # name -> tensor, array, bytes or text
    cases.main()

The same contract as libraries/case.h: ITEM_OUTPUTS is the folder, ITEM_ONLY (shell patterns) and
ITEM_SKIP choose cases. These are ordinary GPU programs that know nothing of Tube. ITEM_DEVICE=cpu
rehearses on a machine without GPU what does not insist on one.
"""
import fnmatch
import os
import pathlib
import sys
import traceback
import zlib

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
DEVICE = os.environ.get("ITEM_DEVICE", "cuda")
TYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "complex64": "f32",
    "complex128": "f64"
}
_cases = []


class Skipped(Exception):
    """Raised by a case that makes no sense here; its text goes into the report."""


def case(function):
    _cases.append((function.__name__, function))
    return function


def add(name, function):
    """A case made in a loop; the names of cases have no dots and no commas."""
    _cases.append((name, function))


def torch_setup():
    """torch with deterministic algorithms and fixed seeds; what has no deterministic form only
    warns."""
    import torch
    import warnings
    warnings.filterwarnings("ignore")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    return torch


def seed(name):
    """The same random numbers for a case whichever cases ran before it."""
    import torch
    torch.manual_seed(zlib.crc32(name.encode()))


def as_bytes(value):
    """(type, bytes) of a result, whichever library it comes from."""
    if isinstance(value, str):
        return "txt", value.encode()
    if isinstance(value, (bytes, bytearray)):
        return "u8", bytes(value)
    if type(value).__module__.startswith("torch"):
        import torch
        flat = value.detach().contiguous().cpu().reshape(-1)
        return TYPES.get(str(value.dtype).removeprefix("torch."),
                         "u8"), flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    if hasattr(value, "get") and type(value).__module__.startswith("cupy"):
        value = value.get()
    import numpy
    array = numpy.asarray(value)
    return TYPES.get(str(array.dtype), "u8"), array.tobytes()


def meaningful(tensor):
    """Raises when equality of this tensor would say nothing: not all finite, or one value
    everywhere."""
    import torch
    flat = tensor.detach().float().reshape(-1) if not tensor.is_complex() else torch.view_as_real(
        tensor.detach()).reshape(-1)
    if not bool(torch.isfinite(flat).all()):
        raise RuntimeError("results are not finite: the case needs other values")
    if flat.numel() > 1 and bool((flat == flat[0]).all()):
        raise RuntimeError("all results are the same value: the case needs other values")
    return tensor


def wanted(name):
    only, skip = (set(filter(None,
                             os.environ.get(variable, "").split(",")))
                  for variable in ("ITEM_ONLY", "ITEM_SKIP"))
    return name not in skip and (not only or
                                 any(fnmatch.fnmatch(name, pattern) for pattern in only))


def run_one(name, function, folder):
    print(f"@begin {name}", flush=True)
    try:
        results = function() or {}
        for output, value in results.items():
            kind, data = as_bytes(value)
            if folder:
                (folder / f"{name}.{output}.{kind}").write_bytes(data)
        print(f"@end {name}", flush=True)
    except Skipped as reason:
        print(f"@skipped {name} {reason}", flush=True)
    except Exception as error:
        traceback.print_exc()
        words = " ".join(f"{type(error).__name__}: {error}".split())
        words = words if len(words) < 900 else f"{words[:300]} ... {words[-600:]}"
        print(f"@failed {name} {words}", flush=True)


def main():
    if "--list" in sys.argv:
        print("\n".join(name for name, _ in _cases))
        return
    folder = os.environ.get("ITEM_OUTPUTS")
    for name, function in _cases:
        if wanted(name):
            run_one(name, function, folder and pathlib.Path(folder))
