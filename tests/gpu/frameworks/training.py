"""Training loops of 20 steps: a transformer and a convolutional net with Adam, mixed precision with
a scaler, data from loader workers.

Losses of all steps and the final weights are compared. Run again by tests/gpu/run under other
allocators (PYTORCH_CUDA_ALLOC_CONF).
"""
import os

import cases

STEPS = 20
torch = cases.torch_setup()
from torch import nn  # noqa: E402


class Translator(nn.Module):
    def __init__(self, words=500, width=128):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 256, batch_first=True, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)))


def convolutional():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64),
                         nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
                         nn.Linear(64, 10))


def results(model, losses):
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    cases.meaningful(flat)
    return {"losses": torch.stack(losses), "weights": flat}


def loop(model, optimizer, batches, amp=None):
    """One step per batch; `amp` is (type, scaler or None). Returns the losses, read only at the
    end."""
    losses = []
    for inputs, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(cases.DEVICE, dtype=amp[0] if amp else torch.bfloat16, enabled=amp
                            is not None):
            logits = model(inputs)
            loss = nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1))
        if amp and amp[1] is not None:
            amp[1].scale(loss).backward()
            amp[1].unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            amp[1].step(optimizer)
            amp[1].update()
        else:
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    return losses


def sentences(count=STEPS):
    for _ in range(count):
        tokens = torch.randint(0, 500, (8, 33), device=cases.DEVICE)
        yield tokens[:, :-1], tokens[:, 1:]


def pictures(count=STEPS):
    for _ in range(count):
        yield torch.randn(16, 3, 32, 32,
                          device=cases.DEVICE), torch.randint(0, 10, (16,), device=cases.DEVICE)


@cases.case
def transformer_adam():
    cases.seed("transformer_adam")
    model = Translator().to(cases.DEVICE)
    return results(model, loop(model, torch.optim.Adam(model.parameters(), 1e-3), sentences()))


@cases.case
def transformer_adamw_fused():
    cases.seed("transformer_adamw_fused")
    model = Translator().to(cases.DEVICE)
    return results(
        model, loop(model, torch.optim.AdamW(model.parameters(), 1e-3, fused=True), sentences()))


@cases.case
def convolution_adam():
    cases.seed("convolution_adam")
    model = convolutional().to(cases.DEVICE)
    return results(model, loop(model, torch.optim.Adam(model.parameters(), 1e-3), pictures()))


@cases.case
def convolution_sgd_channels_last():
    cases.seed("convolution_sgd")
    model = convolutional().to(cases.DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return results(
        model,
        loop(model, optimizer,
             ((x.contiguous(memory_format=torch.channels_last), y) for x, y in pictures())))


@cases.case
def half_with_scaler():
    cases.seed("half_with_scaler")
    model = convolutional().to(cases.DEVICE)
    scaler = torch.amp.GradScaler(cases.DEVICE)
    found = results(
        model,
        loop(model, torch.optim.Adam(model.parameters(), 1e-3), pictures(),
             (torch.float16, scaler)))
    return dict(found, scale=torch.tensor(scaler.get_scale()))


@cases.case
def bfloat16_autocast():
    cases.seed("bfloat16_autocast")
    model = Translator().to(cases.DEVICE)
    return results(
        model,
        loop(model, torch.optim.Adam(model.parameters(), 1e-3), sentences(),
             (torch.bfloat16, None)))


@cases.case
def recurrent_net():
    cases.seed("recurrent_net")
    model = nn.LSTM(32, 64, num_layers=2, batch_first=True).to(cases.DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 20, 32, device=cases.DEVICE))[0].square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return results(model, losses)


@cases.case
def checkpointed_segments():
    from torch.utils.checkpoint import checkpoint
    cases.seed("checkpointed_segments")
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]).to(
            cases.DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses = []
    for _ in range(STEPS):
        value = torch.randn(32, 256, device=cases.DEVICE, requires_grad=True)
        for part in model:
            value = checkpoint(part, value, use_reentrant=False)
        optimizer.zero_grad()
        loss = value.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return results(model, losses)


class Squares(torch.utils.data.Dataset):
    """Made in the loader's worker processes, which are forked and use no GPU."""

    def __len__(self):
        return STEPS * 16

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


@cases.case
def loader_with_workers_and_pinned_memory():
    cases.seed("loader")
    model = convolutional().to(cases.DEVICE)
    # The workers are forked after the GPU was used: natively that is fine as long as they do not
    # touch it.
    loader = torch.utils.data.DataLoader(Squares(), batch_size=16, num_workers=2,
                                         pin_memory=cases.DEVICE == "cuda", persistent_workers=True)
    moved = ((x.to(cases.DEVICE, non_blocking=True), y.to(cases.DEVICE, non_blocking=True))
             for x, y in loader)
    return results(model, loop(model, torch.optim.Adam(model.parameters(), 1e-3), moved))


@cases.case
def memory_grows_and_shrinks():
    """Sizes that make the allocator split, reuse, return and (expandable segments) grow its
    segments."""
    cases.seed("memory")
    kept, sums = [], []
    for size in [3, 700, 5000, 1 << 16, 3 << 20, 17 << 20, 100, 64 << 20, 9 << 20, 1 << 10] * 3:
        kept.append(torch.full((size,), float(size % 97), device=cases.DEVICE))
        if len(kept) > 4:
            sums.append(kept.pop(len(kept) % 3).double().sum())
        if len(sums) % 10 == 9 and cases.DEVICE == "cuda":
            torch.cuda.empty_cache()
    return {
        "sums": torch.stack(sums),
        "settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "default")
    }


cases.main()
