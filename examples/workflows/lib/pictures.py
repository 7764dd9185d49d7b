"""Pictures for host stages that decode: real JPEGs, drawn from a seed when the function starts.

A picture is soft blobs of colour with some sharp shapes. A request chooses among COUNT of them by
its seed and variant; the first COUNT variants each begin with another one. Decoding runs in a few
threads (PIL lets go of Python's lock) to where the output goes, if its way has room for it
(passing.room), or else into one buffer, which the next request uses again.
"""
import concurrent.futures
import io
import os

import numpy
import passing
from PIL import Image, ImageDraw

COUNT = 24
THREADS = min(8, os.cpu_count() or 1)
QUALITY = 90


def drawn(height, width, seed):
    """The bytes of one JPEG."""
    random = numpy.random.default_rng([seed, height, width])
    few = random.integers(0, 256, (9, 16, 3), dtype=numpy.uint8)
    picture = Image.fromarray(few).resize((width, height), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(picture)
    for _ in range(12):
        x, y = random.integers(0, width), random.integers(0, height)
        size = random.integers(width // 40, width // 8)
        pen.rectangle((int(x), int(y), int(x + size), int(y + size // 2)),
                      fill=tuple(int(c) for c in random.integers(0, 256, 3)))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


class Pictures:
    """Encoded pictures of one size."""

    def __init__(self, height, width, seed=1):
        self.size = (height, width)
        self.threads = concurrent.futures.ThreadPoolExecutor(THREADS)
        self.encoded = list(
            self.threads.map(lambda i: drawn(height, width, seed * COUNT + i), range(COUNT)))
        self.buffers = {}

    def decoded(self, params, count, name="frames"):
        """uint8 [count, height, width, 3] of a request. The next call with this name writes over
        it."""
        words = [params["seed"], params["variant"], params["batch"], *name.encode()]
        chosen = numpy.random.default_rng(words).integers(0, COUNT, count)
        chosen[0] = (params["variant"] + sum(name.encode())) % COUNT
        frames = passing.room(name, (count, *self.size, 3))
        if frames is None:
            frames = self.buffer(name, count)
        list(self.threads.map(self.decode, chosen, frames))
        return frames

    def buffer(self, name, count):
        if len(self.buffers.get(name, ())) != count:
            self.buffers[name] = numpy.empty((count, *self.size, 3), numpy.uint8)
        return self.buffers[name]

    def decode(self, number, frame):
        with Image.open(io.BytesIO(self.encoded[number])) as picture:
            frame[:] = numpy.asarray(picture)
