"""Driving, on the host: what the cameras of a car saw, decoded."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import pictures  # noqa: E402
import serving  # noqa: E402

HEIGHT, WIDTH = 1024, 2048


def load(device):
    cameras = pictures.Pictures(HEIGHT, WIDTH)

    def run(inputs, params):
        return {"frames": cameras.decoded(params, params["batch"])}

    return run


if __name__ == "__main__":
    serving.main(load)
