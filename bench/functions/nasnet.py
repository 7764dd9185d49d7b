"""EDAS's nasnet (20 MB): torchvision has no NASNet, so MobileNetV3 large, found by search as well,
5.5 M parameters, 22 MB, a picture of 224 x 224."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import models  # noqa: E402
import serving  # noqa: E402
import state  # noqa: E402


def load(device):
    spec = models.Spec(models.vision("mobilenet_v3_large"), 33, (3, 224, 224))
    model = state.load("faas-nasnet", spec, device)

    def run(inputs, params):
        return {"result": model(inputs["input"]).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
