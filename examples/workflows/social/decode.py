"""Social, on the host: the pictures of new posts, decoded."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import pictures  # noqa: E402
import serving  # noqa: E402

SIDE = 384


def load(device):
    posts = pictures.Pictures(SIDE, SIDE)

    def run(inputs, params):
        return {"frames": posts.decoded(params, params["batch"])}

    return run


if __name__ == "__main__":
    serving.main(load)
