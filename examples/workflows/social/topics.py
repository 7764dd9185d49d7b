"""Social: what the posts with text are about."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402


def load(device):
    classifier = models.ready("bert-topics", device)

    def run(inputs, params):
        return {"topics": classifier(input_ids=inputs["ids"]).logits}

    return run


if __name__ == "__main__":
    serving.main(load)
