"""Yelp: how many stars each review gives; what was understood goes on to the reply."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402


def load(device):
    classifier = models.ready("bert-stars", device)

    def run(inputs, params):
        read = classifier.bert(input_ids=inputs["ids"])
        stars = classifier.classifier(read.pooler_output)
        return {"hidden": read.last_hidden_state, "stars": stars}

    return run


if __name__ == "__main__":
    serving.main(load)
