"""EDAS's speech: the shape of DeepSpeech (three dense layers, a recurrent one in both directions,
another dense one), 6.3 M parameters, 25 MB; 100 steps of 494 features."""
import pathlib
import sys

from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import models  # noqa: E402
import serving  # noqa: E402
import state  # noqa: E402


class DeepSpeech(nn.Module):
    def __init__(self, features=494, width=980, letters=29):
        super().__init__()
        dense = [nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, width)]
        clipped = [part for layer in dense for part in (layer, nn.Hardtanh(0, 20))]
        self.dense = nn.Sequential(*clipped)
        self.recurrent = nn.RNN(width, width, nonlinearity="relu", batch_first=True,
                                bidirectional=True)
        self.last = nn.Sequential(nn.Linear(width, width), nn.Hardtanh(0, 20))
        self.letters = nn.Linear(width, letters)

    def forward(self, sound):
        both = self.recurrent(self.dense(sound))[0]
        there, back = both.chunk(2, dim=-1)
        return self.letters(self.last(there + back)).log_softmax(-1)


def load(device):
    model = state.load("faas-speech", models.Spec(DeepSpeech, 36), device)

    def run(inputs, params):
        return {"result": model(inputs["input"]).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
