"""Image: the classes that the three classifiers agree on most."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import serving  # noqa: E402
import vision  # noqa: E402


def load(device):
    def run(inputs, params):
        opinions = torch.stack([inputs[name].softmax(1) for name in sorted(inputs)])
        return {"votes": vision.top(opinions.mean(0))}

    return run


if __name__ == "__main__":
    serving.main(load)
