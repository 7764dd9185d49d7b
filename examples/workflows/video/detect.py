"""Video: finds the faces of one chunk and cuts them out."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402
import vision  # noqa: E402

MOST, CROP = 50, 112
EXTENT = (16, 96)  # Pixels of a side.


def load(device):
    detector = models.ready("face-detector", device)

    def run(inputs, params):
        images = inputs["images"]
        places = vision.places(params, f"faces{params['chunk']}", images.shape[-1], *EXTENT)
        found = vision.best(*detector(images), MOST)
        return {"found": found, "faces": vision.crops(images, places, CROP)}

    return run


if __name__ == "__main__":
    serving.main(load)
