"""NCCL inside one process on two GPUs, or four where there are so many: every collective that
torch.cuda.nccl offers, several types and sizes, on streams of its own.

Prints hashes of the results; NCCL sums in the order of its rings, which the same GPUs have in every
run. Exit status: 0, or 77.
"""
import hashlib
import sys

try:
    import torch
    import torch.cuda.nccl as nccl
except ImportError:
    print("SKIPPED: no PyTorch")
    sys.exit(77)

GPUS = 4 if torch.cuda.device_count() >= 4 else 2
SIZES = (1, 1000, 1 << 16, (1 << 22) + 3)


def digest(tensor):
    data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


def inputs(size, kind):
    made = []
    for gpu in range(GPUS):
        values = torch.randn(size,
                             generator=torch.Generator().manual_seed(17 * gpu + size % 1000)) * 100
        made.append(values.to(kind).to(f"cuda:{gpu}"))
    return made


def show(name, tensors):
    for gpu in range(GPUS):
        torch.cuda.synchronize(gpu)
    print(f"{name}: {' '.join(digest(t) for t in tensors)}", flush=True)


def collectives(size, kind):
    name = f"{size} of {str(kind).split('.')[-1]}"
    tensors = inputs(size, kind)
    nccl.all_reduce(tensors)
    show(f"all_reduce {name}", tensors)
    tensors = inputs(size, kind)
    nccl.all_reduce(tensors, op=2)
    show(f"all_reduce max {name}", tensors)
    tensors = inputs(size, kind)
    nccl.broadcast(tensors, 0)
    show(f"broadcast {name}", tensors)
    tensors = inputs(size, kind)
    target = torch.zeros_like(tensors[0])
    nccl.reduce(tensors, target, root=0)
    show(f"reduce {name}", [target])
    tensors = inputs(size, kind)
    gathered = [torch.zeros(GPUS * size, dtype=kind, device=f"cuda:{gpu}") for gpu in range(GPUS)]
    nccl.all_gather(tensors, gathered)
    show(f"all_gather {name}", gathered)
    tensors = inputs(GPUS * size, kind)
    parts = [torch.zeros(size, dtype=kind, device=f"cuda:{gpu}") for gpu in range(GPUS)]
    nccl.reduce_scatter(tensors, parts)
    show(f"reduce_scatter {name}", parts)


def in_streams():
    """Behind other work on streams of our own, many times over."""
    streams = [torch.cuda.Stream(gpu) for gpu in range(GPUS)]
    tensors = inputs(1 << 18, torch.float32)
    for gpu in range(GPUS):
        streams[gpu].wait_stream(torch.cuda.current_stream(gpu))
    for _ in range(50):
        for gpu in range(GPUS):
            with torch.cuda.stream(streams[gpu]):
                tensors[gpu].mul_(0.5).add_(gpu)
        nccl.all_reduce(tensors, streams=streams)
    show("50 in streams", tensors)


def main():
    if torch.cuda.device_count() < GPUS:
        print(f"SKIPPED: {GPUS} GPUs needed, {torch.cuda.device_count()} here")
        return 77
    for kind in (torch.float32, torch.float16, torch.int64):
        for size in SIZES:
            collectives(size, kind)
    in_streams()
    return 0


if __name__ == "__main__":
    sys.exit(main())
