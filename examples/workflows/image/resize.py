"""Image: the pictures as all three classifiers want them, 224 x 224."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import serving  # noqa: E402
import vision  # noqa: E402

SIDE = 224


def load(device):
    def run(inputs, params):
        return {"small": vision.normalised(vision.resized(inputs["clean"], SIDE, SIDE))}

    return run


if __name__ == "__main__":
    serving.main(load)
