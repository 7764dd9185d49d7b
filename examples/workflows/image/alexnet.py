"""Image: AlexNet's opinion of each picture."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402


def load(device):
    classifier = models.ready("alexnet", device)

    def run(inputs, params):
        return {"alexnet_scores": classifier(inputs["small"])}

    return run


if __name__ == "__main__":
    serving.main(load)
