"""Driving: the class of every pixel."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402
import vision  # noqa: E402


def load(device):
    segmenter = models.ready("segmenter", device)

    def run(inputs, params):
        clean = inputs["clean"]
        logits = vision.resized(segmenter(vision.normalised(clean)), *clean.shape[-2:])
        return {"classes": logits.argmax(1).to(torch.uint8)}

    return run


if __name__ == "__main__":
    serving.main(load)
