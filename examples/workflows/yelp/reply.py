"""Yelp: a reply of 32 words to each review."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402
import vision  # noqa: E402

WORDS = 32


def load(device):
    writer = models.ready("bert-reply", device)

    def run(inputs, params):
        read = writer.bert(inputs_embeds=inputs["hidden"]).last_hidden_state
        logits = writer.cls(read[:, :WORDS])
        best = vision.top(logits.flatten(0, 1), 1)
        return {"reply": best.view(-1, WORDS, 2)}

    return run


if __name__ == "__main__":
    serving.main(load)
