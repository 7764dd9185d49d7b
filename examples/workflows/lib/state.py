"""Weights: made once from a seed, kept in files, mapped by every process that loads the model.

A file holds all parameters and buffers of one model, below WORKFLOW_STATE (otherwise a folder of
this user's in the temporary one). Who finds none makes it, under a lock; others wait for that.
Its name changes with the code that makes it.
Loading builds the model without memory and puts the mapped tensors in: a process starts in the
time that the copy to its GPU takes.

    state.py [WORKFLOW..]    makes what these workflows need (all of them), so that nothing waits
"""
import contextlib
import fcntl
import functools
import hashlib
import os
import pathlib
import sys
import tempfile
import time

import torch

import pictures

CALIBRATION = 16  # Pictures that batch normalisation takes its statistics from.
MAKERS = ("models.py", "state.py", "pictures.py")


def folder():
    named = os.environ.get("WORKFLOW_STATE")
    below = pathlib.Path(tempfile.gettempdir()) / f"workflow-state-{os.getuid()}"
    path = pathlib.Path(named) if named else below
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def locked(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tensors_of(model):
    """name -> tensor, with the buffers that a state_dict leaves out, and every name of a tensor
    that has several."""
    named = dict(model.named_parameters(remove_duplicate=False))
    named.update(model.named_buffers(remove_duplicate=False))
    return {name: tensor.detach() for name, tensor in named.items()}


def seen(shape, seed):
    """Pictures as the workflows' host stages decode them, normalised."""
    params = {"seed": seed, "variant": 0, "batch": CALIBRATION}
    frames = pictures.Pictures(*shape[1:]).decoded(params, CALIBRATION)
    return (torch.from_numpy(frames).permute(0, 3, 1, 2) / 255 - 0.45) / 0.225


def calibrate(model, shape, seed):
    """Gives batch normalisation the statistics of a forward pass: with those that it begins with,
    the activations of an untrained network grow or vanish from layer to layer."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    frames = seen(shape, seed)
    model(frames)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
        norm.eval()
    if hasattr(model, "level"):
        model.level(frames)


@torch.no_grad()
def made(path, spec):
    """Writes the file, unless another process was faster."""
    with locked(path.with_suffix(".lock")):
        if path.exists():
            return
        torch.manual_seed(spec.seed)
        model = spec.build().eval()
        if spec.calibration:
            calibrate(model, spec.calibration, spec.seed)
        part = path.with_suffix(f".{os.getpid()}")
        torch.save(tensors_of(model), part)
        part.rename(path)


@functools.cache
def edition():
    """Names the code that makes weights: weights of another one are not taken."""
    here = pathlib.Path(__file__).resolve().parent
    texts = b"".join((here / name).read_bytes() for name in MAKERS)
    return hashlib.blake2b(texts, digest_size=4).hexdigest()


def path_of(name, spec):
    path = folder() / f"{name}-{spec.seed}-{edition()}.pt"
    if not path.exists():
        made(path, spec)
    return path


def put(model, tensors):
    """Makes the tensors the model's own; one that has several names stays one."""
    known = {}
    for prefix, module in model.named_modules():
        dot = prefix + "." if prefix else ""
        for name in list(module._parameters):
            if module._parameters[name] is not None:
                tensor = tensors[dot + name]
                key = (tensor.data_ptr(), tensor.shape)
                if key not in known:
                    known[key] = torch.nn.Parameter(tensor, requires_grad=False)
                module._parameters[name] = known[key]
        for name in list(module._buffers):
            if module._buffers[name] is not None:
                module._buffers[name] = tensors[dot + name]


def load(name, spec, device):
    """The model on its device, ready for inference."""
    path = path_of(name, spec)
    with torch.device("meta"):
        model = spec.build()
    put(model, torch.load(path, mmap=True, weights_only=True))
    return model.to(device).eval().requires_grad_(False)


def main(names):
    import tomllib

    import models
    home = pathlib.Path(__file__).resolve().parents[1]
    for toml in sorted(home.glob("*/workflow.toml")):
        if names and toml.parent.name not in names:
            continue
        for name in tomllib.loads(toml.read_text()).get("weights", ()):
            begin = time.monotonic()
            size = path_of(name, models.TABLE[name]).stat().st_size
            print(f"{name}: {size / 1e6:.0f} MB, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
