"""A launch-bound PyTorch step: 200 additions to a tensor of 1,024 numbers, then a synchronise."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu" / "items"))
import worker  # noqa: E402


def setup():
    torch = worker.torch_setup()
    numbers = torch.arange(1024, device="cuda", dtype=torch.int32)

    def step():
        for _ in range(200):
            numbers.add_(1)
        torch.cuda.synchronize()

    return step, lambda: {"numbers": worker.raw(numbers)}


worker.serve(setup)
