"""EDAS's vgg11: 133 M parameters, 507 MB, a picture of 224 x 224."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import models  # noqa: E402
import serving  # noqa: E402
import state  # noqa: E402


def load(device):
    model = state.load("faas-vgg11", models.Spec(models.vision("vgg11"), 31), device)

    def run(inputs, params):
        return {"result": model(inputs["input"]).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
