"""Data from one function to the next by Tube's store (the package tube): an output becomes a named
object in its GPU's memory, or in host memory that all functions share, and whoever takes it has the
same memory. The key of a handle is the object's name.

An output that was computed elsewhere than in the store is copied into it, inside its GPU; nothing
else is copied where producer and consumer are in the same place. A host function that asks for room
writes into the object, and its output is copied to the GPU once, for all consumers.
"""
import pathlib
import sys

import numpy

PATIENCE_S = 60
PYTHON = pathlib.Path(__file__).resolve().parents[3] / "python"


class Store:
    """The store as one function sees it; `side` as in passing.py."""

    def __init__(self, side):
        if str(PYTHON) not in sys.path:
            sys.path.append(str(PYTHON))
        import tube
        self.tube, self.side, self.made = tube, side, set()
        self.here = tube.GPU if side.shares else tube.HOST

    def give(self, output, on_host):
        """The name of an object with the output's bytes; `on_host`: for functions on the host."""
        name = self.tube.unique_id()
        place = self.tube.HOST if on_host else self.here
        self.tube.put(name, self.side.stored(output), place=place, stream=self.side.stream())
        self.made.add(name)
        return name

    def room(self, shape, dtype):
        """A reserved object in host memory, an array to NumPy: to be filled and sealed."""
        return self.tube.reserve(self.tube.unique_id(), shape, numpy.dtype(dtype),
                                 place=self.tube.HOST)

    def seal(self, reserved):
        """The name of what was filled."""
        reserved.seal()
        self.made.add(reserved.name)
        return reserved.name

    def take(self, name):
        """The handle may be here before the seal is: waits for that."""
        return self.side.taken(self.tube.get(name, timeout=PATIENCE_S, place=self.here,
                                             stream=self.side.stream()))

    def release(self, name):
        """Nobody takes this one any more. A name that is not ours is passed over."""
        if name in self.made:
            self.made.remove(name)
            self.tube.delete(name)

    def close(self):
        for name in list(self.made):
            self.release(name)
