"""Traffic: finds what is in the frames; cuts out cars and persons, for a classifier each."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402
import vision  # noqa: E402

MOST, CROP = 100, 224
EXTENT = {"cars": (60, 240), "persons": (30, 120)}  # Pixels of a side.


def load(device):
    detector = models.ready("traffic-detector", device)

    def run(inputs, params):
        images = inputs["images"]
        outputs = {"detections": vision.best(*detector(images), MOST)}
        for name, (smallest, largest) in EXTENT.items():
            places = vision.places(params, name, images.shape[-1], smallest, largest)
            outputs[name] = vision.crops(images, places, CROP)
        return outputs

    return run


if __name__ == "__main__":
    serving.main(load)
