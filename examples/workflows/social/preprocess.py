"""Social: pictures as the reader wants them, in float around zero."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import serving  # noqa: E402
import vision  # noqa: E402


def load(device):
    def run(inputs, params):
        return {"images": vision.pixels(inputs["frames"]).sub_(0.5).div_(0.5)}

    return run


if __name__ == "__main__":
    serving.main(load)
