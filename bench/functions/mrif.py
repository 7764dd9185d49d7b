"""EDAS's mrif: the F matrix of a reconstruction of magnetic resonance pictures; 1.5 million places,
18 MB in, 256 samples of the k space."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import serving  # noqa: E402

SAMPLES, BLOCK = 256, 1 << 16


def load(device):
    chosen = torch.Generator().manual_seed(38)
    space = (torch.rand((3, SAMPLES), generator=chosen) * 6.2831853).to(device)
    signal = torch.rand((2, SAMPLES), generator=chosen).to(device)

    def run(inputs, params):
        places = inputs["input"].view(-1, 3)
        made = torch.empty((len(places), 2), device=places.device)
        for begin in range(0, len(places), BLOCK):
            angle = places[begin:begin + BLOCK] @ space
            made[begin:begin + BLOCK, 0] = angle.cos() @ signal[0] + angle.sin() @ signal[1]
            made[begin:begin + BLOCK, 1] = angle.cos() @ signal[1] - angle.sin() @ signal[0]
        return {"result": made[::1024].cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
