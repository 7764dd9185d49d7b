"""Traffic: what kind of car each crop shows."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402
import vision  # noqa: E402


def load(device):
    classifier = models.ready("resnet50-cars", device)

    def run(inputs, params):
        return {"car_kinds": vision.top(classifier(inputs["cars"]))}

    return run


if __name__ == "__main__":
    serving.main(load)
