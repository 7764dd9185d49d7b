"""Social: writes down what the encoder read, word by word, and puts it behind the caption, if the
pictures of this post have text."""
import pathlib
import sys

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import models  # noqa: E402
import serving  # noqa: E402

STEPS, CAPTION = 32, 96  # Words.
BEGIN, VOCABULARY = 2, 30_522  # The decoder's first word; how many words the next model knows.


def written(decoder, encoded):
    """(words [N, STEPS], their logits): the likeliest word each time, with a key-value cache."""
    word = torch.full((len(encoded), 1), BEGIN, device=encoded.device)
    words, scores, past = [], [], None
    for _ in range(STEPS):
        out = decoder(input_ids=word, encoder_hidden_states=encoded, past_key_values=past,
                      use_cache=True)
        past = out.past_key_values
        score, word = out.logits[:, -1].max(-1, keepdim=True)
        words.append(word)
        scores.append(score)
    return torch.cat(words, 1), torch.cat(scores, 1)


def captions(params):
    words = [params["seed"], params["variant"], params["batch"]]
    random = numpy.random.default_rng(words)
    return random.integers(1000, VOCABULARY, (params["batch"], CAPTION))


def load(device):
    decoder = models.ready("ocr-decoder", device)

    def run(inputs, params):
        text, scores = written(decoder, inputs["encoded"])
        caption = torch.from_numpy(captions(params)).to(device)
        ids = torch.cat((caption, text % VOCABULARY), 1) if params["has_text"] else None
        return {"text": text, "scores": scores, "ids": ids}

    return run


if __name__ == "__main__":
    serving.main(load)
