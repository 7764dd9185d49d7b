"""torchvision ResNet-50 inference, random weights; arguments: half or float, and the batch (8)."""
import sys

import worker


def setup():
    torch = worker.torch_setup()
    import torchvision
    kind = torch.float16 if sys.argv[1] == "half" else torch.float32
    model = torchvision.models.resnet50(weights=None).eval().cuda().to(kind)
    batch_size = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    images = torch.randn(batch_size, 3, 224, 224).to(kind).pin_memory()
    state = {}

    def step():
        batch = images.to("cuda", non_blocking=True)
        state["logits"] = model(batch)
        state["host"] = state["logits"].cpu()

    return step, lambda: {"logits": worker.raw(state["logits"]), "host": worker.raw(state["host"])}


worker.serve(setup)
