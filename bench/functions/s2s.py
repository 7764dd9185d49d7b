"""EDAS's s2s: a sequence of 32 words to one of 32, both by a recurrent layer, one word after the
other; 1.6 M parameters, 6 MB."""
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import models  # noqa: E402
import serving  # noqa: E402
import state  # noqa: E402


class Sequences(nn.Module):
    def __init__(self, words=1000, width=256, length=32):
        super().__init__()
        self.length = length
        self.read, self.write = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTMCell(width, width)
        self.word = nn.Linear(width, words)

    def forward(self, ids):
        _, (hidden, cell) = self.encoder(self.read(ids))
        hidden, cell = hidden[0], cell[0]
        word, said = torch.zeros_like(ids[:, 0]), []
        for _ in range(self.length):
            hidden, cell = self.decoder(self.write(word), (hidden, cell))
            word = self.word(hidden).argmax(-1)
            said.append(word)
        return torch.stack(said, 1)


def load(device):
    model = state.load("faas-s2s", models.Spec(Sequences, 37), device)

    def run(inputs, params):
        return {"result": model(inputs["input"] % 1000).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
