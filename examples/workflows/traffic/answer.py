"""Traffic, on the host: what was seen, for the one who asked."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import serving  # noqa: E402


def load(device):
    def run(inputs, params):
        return {"result": {name: seen for name, seen in inputs.items() if seen is not None}}

    return run


if __name__ == "__main__":
    serving.main(load)
