"""Video: who the faces of all chunks are. Runs with the chunks that have any."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402
import vision  # noqa: E402


def load(device):
    classifier = models.ready("resnet50-faces", device)

    def run(inputs, params):
        there = {name: faces for name, faces in inputs.items() if faces is not None}
        people = vision.top(classifier(torch.cat(tuple(there.values()))))
        parts = people.split([len(faces) for faces in there.values()])
        return {name.replace("faces", "people"): part.clone() for name, part in zip(there, parts)}

    return run


if __name__ == "__main__":
    serving.main(load)
