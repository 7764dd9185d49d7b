"""EDAS's inception3: 24 M parameters, 95 MB, a picture of 299 x 299."""
import pathlib
import sys

import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import models  # noqa: E402
import serving  # noqa: E402
import state  # noqa: E402


def build():
    """Without the head that only training uses."""
    model = torchvision.models.inception_v3(weights=None, aux_logits=True, init_weights=False)
    model.AuxLogits, model.aux_logits = None, False
    return model


def load(device):
    model = state.load("faas-inception3", models.Spec(build, 34, (3, 299, 299)), device)

    def run(inputs, params):
        return {"result": model(inputs["input"]).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
