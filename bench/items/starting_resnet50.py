"""torchvision's ResNet-50 (batch 1, random weights) as a function that starts: what it takes from its
first CUDA call to its first result, without the imports, which need no GPU."""
import json
import time

import torch
import torchvision


def main():
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    model = torchvision.models.resnet50(weights=None).eval()
    image = torch.randn(1, 3, 224, 224)
    begin = time.monotonic_ns()
    model = model.cuda()
    logits = model(image.cuda()).cpu()
    end = time.monotonic_ns()
    assert logits.shape == (1, 1000)
    print(f"@started {json.dumps({'begin_ns': begin, 'end_ns': end})}", flush=True)


if __name__ == "__main__":
    main()
