"""EDAS's lbm: a lattice Boltzmann fluid (19 directions, 120 x 120 x 150 cells, one value more a
cell), 173 MB in, the same in work; 10 steps a request."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import serving  # noqa: E402

STEPS, OMEGA = 10, 1.2
SHAPE = (150, 120, 120)
# The 19 directions: none, along an axis, along two.
WAYS = [(z, y, x) for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1)
        if abs(z) + abs(y) + abs(x) < 3]
WEIGHTS = {0: 1 / 3, 1: 1 / 18, 2: 1 / 36}


def collide(cells, ways, weights):
    """Towards the equilibrium of each cell's own density and speed."""
    density = cells.sum(0)
    speed = torch.tensordot(ways.T, cells, 1) / density
    square = (speed * speed).sum(0) * 1.5
    for direction, way in enumerate(ways):
        along = 3 * torch.tensordot(way, speed, 1)
        wanted = weights[direction] * density * (1 + along + along * along / 2 - square)
        cells[direction].lerp_(wanted, OMEGA)


def stream(cells):
    """Each direction's part moves one cell on; the box is closed in itself."""
    for direction, way in enumerate(WAYS):
        cells[direction] = cells[direction].roll(way, (0, 1, 2))


def load(device):
    ways = torch.tensor(WAYS, dtype=torch.float32, device=device)
    weights = [WEIGHTS[sum(map(abs, way))] for way in WAYS]

    def run(inputs, params):
        cells = inputs["input"].view(20, *SHAPE)[:19] * 0.01
        for direction, weight in enumerate(weights):
            cells[direction] += weight
        for _ in range(STEPS):
            collide(cells, ways, weights)
            stream(cells)
        return {"result": cells.sum((0, 2, 3)).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
