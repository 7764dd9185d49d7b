"""Yelp, on the host: reviews as numbers of words."""
import pathlib
import sys
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import serving  # noqa: E402

WORDS, REVIEWS = 256, 64
START, END, FIRST, VOCABULARY = 101, 102, 1000, 30_522
SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ly", "mar", "nen", "pol", "qui", "rest", "sa", "tor")


def review(number):
    """A text of words that nobody ever wrote."""
    random = numpy.random.default_rng(number)
    lengths = random.integers(1, 4, random.integers(WORDS, WORDS + 100))
    return " ".join("".join(random.choice(SYLLABLES, length)) for length in lengths)


def tokens(text):
    """A word's number is its hash: there is no vocabulary to download."""
    numbers = [zlib.crc32(word.encode()) % (VOCABULARY - FIRST) + FIRST for word in text.split()]
    return numpy.array([START, *numbers[:WORDS - 2], END], numpy.int64)


def load(device):
    reviews = [review(number) for number in range(REVIEWS)]

    def run(inputs, params):
        random = numpy.random.default_rng([params["seed"], params["variant"], params["batch"]])
        chosen = random.integers(0, REVIEWS, params["batch"])
        chosen[0] = params["variant"] % REVIEWS
        return {"ids": numpy.stack([tokens(reviews[number]) for number in chosen])}

    return run


if __name__ == "__main__":
    serving.main(load)
