"""PyTorch's start, stamped: import, initialisation, first tensor, first checked result; with
`resnet50` a model's load and first run.

Prints one JSON line of monotonic nanoseconds, as stamps.h does.
"""
import json
import sys
import time

STAMPS = {}


def mark(name):
    STAMPS[name] = time.monotonic_ns()


mark("main")
import torch  # noqa: E402

model = images = want = None
if "resnet50" in sys.argv[1:]:
    import torchvision
    torch.manual_seed(7)
    model = torchvision.models.resnet50(weights=None).eval()
    images = torch.randn(1, 3, 224, 224)
mark("import")
torch.cuda.init()
mark("init")
numbers = torch.arange(4096, dtype=torch.int64, device="cuda")
mark("tensor")
total = int((numbers * 3 + 1).sum().item())
if total != 3 * 4095 * 2048 + 4096:
    sys.exit(f"the sum is {total}")
mark("result")
if model is not None:
    model = model.cuda()
    torch.cuda.synchronize()
    mark("weights")
    with torch.no_grad():
        logits = model(images.cuda()).cpu()
    if not torch.isfinite(logits).all():
        sys.exit("the logits are not finite")
    mark("model")
print(json.dumps(STAMPS), flush=True)
