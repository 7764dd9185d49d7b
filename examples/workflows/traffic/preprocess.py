"""Traffic: frames as the detector wants them, 800 x 800 in float."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import serving  # noqa: E402
import vision  # noqa: E402

SIDE = 800


def load(device):
    def run(inputs, params):
        images = vision.resized(vision.pixels(inputs["frames"]), SIDE, SIDE)
        return {"images": vision.normalised(images)}

    return run


if __name__ == "__main__":
    serving.main(load)
