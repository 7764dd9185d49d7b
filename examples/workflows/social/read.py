"""Social: looks at the pictures: the encoder of an OCR model."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402


def load(device):
    encoder = models.ready("ocr-encoder", device)

    def run(inputs, params):
        return {"encoded": encoder(pixel_values=inputs["images"]).last_hidden_state}

    return run


if __name__ == "__main__":
    serving.main(load)
