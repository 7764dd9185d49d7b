"""EDAS's tpacf: how often galaxies are how far apart; 97 sets of 24,000 places, 28 MB in, the first
512 of the first set against all."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import serving  # noqa: E402

NEAR, BINS = 512, 16


def load(device):
    edges = torch.linspace(-1, 1, BINS + 1, dtype=torch.float64)[:-1].tolist()

    def run(inputs, params):
        places = torch.nn.functional.normalize(inputs["input"].view(97, -1, 3) - 0.5, dim=-1)
        near = places[0, :NEAR]
        counts = []
        for others in places:
            cosines = near @ others.T
            counts.append(torch.stack([(cosines > edge).sum() for edge in edges]))
        return {"result": torch.stack(counts).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
