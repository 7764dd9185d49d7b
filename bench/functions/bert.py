"""EDAS's bert: the shape of BERT large (24 layers of 1,024), 334 M parameters, 1,335 MB; 128
words."""
import pathlib
import sys

from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/workflows/lib"))
import models  # noqa: E402
import serving  # noqa: E402
import state  # noqa: E402


class Bert(nn.Module):
    """Built of torch's own encoder layers, which are BERT's; so transformers is not needed."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 1024), nn.Embedding(512, 1024)
        self.norm = nn.LayerNorm(1024, eps=1e-12)
        layer = nn.TransformerEncoderLayer(1024, 16, 4096, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 24, enable_nested_tensor=False)
        self.classes = nn.Linear(1024, 2)

    def forward(self, ids):
        hidden = self.norm(self.words(ids) + self.places.weight[:ids.shape[1]])
        return self.classes(self.layers(hidden)[:, 0])


def load(device):
    model = state.load("faas-bert", models.Spec(Bert, 35), device)

    def run(inputs, params):
        return {"result": model(inputs["input"] % 30522).cpu().numpy()}

    return run


if __name__ == "__main__":
    serving.main(load)
