"""The bytes of EDAS's llama-7B-INT8: 6.8 GB that are read once a request. No language model, but
what loading and holding it costs."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import serving  # noqa: E402

LAYERS, LAYER_BYTES = 32, 212_812_500


def load(device):
    layers = [torch.full((LAYER_BYTES,), layer, dtype=torch.int8, device=device)
              for layer in range(LAYERS)]

    def run(inputs, params):
        sums = [layer.sum(dtype=torch.int64) for layer in layers]
        return {"result": (torch.stack(sums) + inputs["input"].sum()).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
