"""Yelp, on the host: stars and replies, for the one who asked."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import serving  # noqa: E402


def load(device):
    def run(inputs, params):
        return {"result": {name: inputs[name] for name in ("stars", "reply")}}

    return run


if __name__ == "__main__":
    serving.main(load)
