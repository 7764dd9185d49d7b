"""Traffic, on the host: the frames of a junction's camera, decoded."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import pictures  # noqa: E402
import serving  # noqa: E402

HEIGHT, WIDTH = 1080, 1920


def load(device):
    camera = pictures.Pictures(HEIGHT, WIDTH)

    def run(inputs, params):
        return {"frames": camera.decoded(params, params["batch"])}

    return run


if __name__ == "__main__":
    serving.main(load)
