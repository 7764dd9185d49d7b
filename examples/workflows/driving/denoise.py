"""Driving: takes the noise off the frames."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402
import vision  # noqa: E402


def load(device):
    denoiser = models.ready("denoiser", device)

    def run(inputs, params):
        return {"clean": denoiser(vision.pixels(inputs["frames"]))}

    return run


if __name__ == "__main__":
    serving.main(load)
