"""What functions on pictures share: pixels, boxes, crops. Torch tensors, deterministic kernels.

Pictures that go from one function to the next are contiguous, channels before rows: what a kernel
computes to the last bit may depend on that.
"""
import functools

import numpy
import torch
import torchvision

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OVERLAP = 0.45
APART = 10_000.0  # Pixels between frames that one suppression looks at together.


def pixels(frames):
    """uint8 [N, H, W, 3] to float32 [N, 3, H, W] from 0 to 1."""
    planes = frames.permute(0, 3, 1, 2)
    return planes.to(torch.float32, memory_format=torch.contiguous_format).div_(255)


def pictures(images):
    """The way back: float32 from 0 to 1 to uint8."""
    return images.clamp(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def resized(images, height, width):
    return torch.nn.functional.interpolate(images, (height, width), mode="bilinear",
                                           align_corners=False)


@functools.cache
def imagenet(device):
    """(mean, deviation) of the colours on this device."""
    return [torch.tensor(colours, device=device).view(1, 3, 1, 1) for colours in (MEAN, DEVIATION)]


def normalised(images):
    """Minus ImageNet's mean, over its deviation."""
    mean, deviation = imagenet(images.device)
    return (images - mean).div_(deviation)


def best(boxes, logits, most):
    """The `most` best detections of each frame, [N, most, 5]: corners and score; those that a
    better one overlaps are zeros."""
    top, at = logits.topk(most, dim=1)
    chosen = boxes.gather(1, at.unsqueeze(-1).expand(-1, -1, 4))
    frame = torch.arange(len(boxes), device=boxes.device, dtype=boxes.dtype) * APART
    flat = (chosen + frame.view(-1, 1, 1)).flatten(0, 1)
    kept = torchvision.ops.nms(flat, top.flatten(), OVERLAP)
    mask = torch.zeros(len(flat), device=boxes.device).index_fill_(0, kept, 1)
    found = torch.cat((chosen, top.sigmoid().unsqueeze(-1)), -1)
    return found * mask.view(len(boxes), most, 1)


def places(params, name, side, smallest, largest):
    """Boxes for the `name` of a request, [K, 5]: frame and corners in a picture of `side` pixels.

    A detector with weights from a seed finds nothing sensible. So its detections go into the
    result, but how many objects a frame has (`NAME_each`) and where they are comes from the params.
    """
    each = params[f"{name}_each"]
    words = [params["seed"], params["variant"], params["batch"], *name.encode()]
    random = numpy.random.default_rng(words)
    extent = random.uniform(smallest, largest, (sum(each), 2))
    corner = random.uniform(0, 1, (sum(each), 2)) * (side - extent)
    frame = numpy.repeat(numpy.arange(len(each)), each)[:, None]
    return numpy.concatenate((frame, corner, corner + extent), 1).astype(numpy.float32)


def crops(images, rows, size):
    """[K, 3, size, size] cut out of `images`, or None without any box."""
    if len(rows) == 0:
        return None
    rows = torch.from_numpy(rows).to(images.device)
    return torch.ops.torchvision.roi_align(images, rows, 1.0, size, size, 2, True)


def top(logits, most=5):
    """The best classes, [N, most, 2]: logit and class."""
    values, classes = logits.topk(most, dim=1)
    return torch.stack((values, classes.to(values.dtype)), -1)
