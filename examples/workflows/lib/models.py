"""The models of the workflows: real architectures, weights from a seed.

Torchvision's and transformers' are theirs; what neither has is built here: a detector in the shape
of YOLOv5s (CSP blocks, pyramid pooling, a path up and one down, three anchors on three levels) and
DnCNN, the denoiser of seventeen convolutions. No weights are downloaded.

`models.ready(NAME, device)` gives a model of TABLE with its weights (state.py).
"""
import dataclasses
import typing

import torch
from torch import nn

import state


class Unit(nn.Sequential):
    """Convolution, batch normalisation, SiLU."""

    def __init__(self, before, after, kernel=1, stride=1):
        conv = nn.Conv2d(before, after, kernel, stride, (kernel - 1) // 2, bias=False)
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        super().__init__(conv, nn.BatchNorm2d(after, eps=1e-3), nn.SiLU(inplace=True))


class Bottleneck(nn.Module):
    def __init__(self, width, residual):
        super().__init__()
        self.units = nn.Sequential(Unit(width, width), Unit(width, width, 3))
        self.residual = residual

    def forward(self, x):
        return x + self.units(x) if self.residual else self.units(x)


class CrossStage(nn.Module):
    """Half of the channels pass `depth` bottlenecks, half go by them."""

    def __init__(self, before, after, depth, residual=True):
        super().__init__()
        half = after // 2
        self.through = nn.Sequential(Unit(before, half),
                                     *(Bottleneck(half, residual) for _ in range(depth)))
        self.past = Unit(before, half)
        self.joined = Unit(after, after)

    def forward(self, x):
        return self.joined(torch.cat((self.through(x), self.past(x)), 1))


class PyramidPooling(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.after = Unit(width, width // 2), Unit(width * 2, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        levels = [self.before(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        return self.after(torch.cat(levels, 1))


class Detector(nn.Module):
    """YOLOv5s's shape: 7.2 M parameters with 80 classes."""
    STRIDES = (8, 16, 32)
    ANCHORS = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)),
               ((116, 90), (156, 198), (373, 326)))

    def __init__(self, classes=80):
        super().__init__()
        self.down3 = nn.Sequential(Unit(3, 32, 6, 2), Unit(32, 64, 3, 2), CrossStage(64, 64, 1),
                                   Unit(64, 128, 3, 2), CrossStage(128, 128, 2))
        self.down4 = nn.Sequential(Unit(128, 256, 3, 2), CrossStage(256, 256, 3))
        self.down5 = nn.Sequential(Unit(256, 512, 3, 2), CrossStage(512, 512, 1),
                                   PyramidPooling(512), Unit(512, 256))
        self.up4 = nn.Sequential(CrossStage(512, 256, 1, False), Unit(256, 128))
        self.out3 = CrossStage(256, 128, 1, False)
        self.again3, self.out4 = Unit(128, 128, 3, 2), CrossStage(256, 256, 1, False)
        self.again4, self.out5 = Unit(256, 256, 3, 2), CrossStage(512, 512, 1, False)
        self.values = 5 + classes
        self.heads = nn.ModuleList(nn.Conv2d(w, 3 * self.values, 1) for w in (128, 256, 512))
        self.larger = nn.Upsample(scale_factor=2, mode="nearest")
        for level, anchors in enumerate(self.ANCHORS):
            self.register_buffer(f"anchors{level}", torch.tensor(anchors, dtype=torch.float32))

    def forward(self, images):
        """(boxes [N, A, 4] as corners in pixels, logits [N, A] of the best class)."""
        three = self.down3(images)
        four = self.down4(three)
        five = self.down5(four)
        mid = self.up4(torch.cat((self.larger(five), four), 1))
        out3 = self.out3(torch.cat((self.larger(mid), three), 1))
        out4 = self.out4(torch.cat((self.again3(out3), mid), 1))
        out5 = self.out5(torch.cat((self.again4(out4), five), 1))
        found = [self.decoded(level, x) for level, x in enumerate((out3, out4, out5))]
        return tuple(torch.cat(parts, 1) for parts in zip(*found))

    def decoded(self, level, features):
        batch, _, rows, columns = features.shape
        raw = self.heads[level](features).view(batch, 3, self.values, rows, columns)
        raw = raw.permute(0, 1, 3, 4, 2)
        y = torch.arange(rows, device=raw.device, dtype=raw.dtype).view(1, 1, rows, 1, 1)
        x = torch.arange(columns, device=raw.device, dtype=raw.dtype).view(1, 1, 1, columns, 1)
        cell = torch.cat((x.expand(1, 1, rows, columns, 1), y.expand(1, 1, rows, columns, 1)), 4)
        anchors = getattr(self, f"anchors{level}").view(1, 3, 1, 1, 2)
        middle = (raw[..., 0:2].sigmoid() * 2 - 0.5 + cell) * self.STRIDES[level]
        half = (raw[..., 2:4].sigmoid() * 2).square() * anchors / 2
        boxes = torch.cat((middle - half, middle + half), -1)
        logits = raw[..., 4] + raw[..., 5:].amax(-1)
        return boxes.flatten(1, 3), logits.flatten(1, 3)


class FaceDetector(nn.Module):
    """SSDLite on MobileNetV3 for pictures of 320 x 320, one class of its 91 read; boxes and logits
    as Detector gives them."""
    SIDE, LEVELS, FACE = 320, (20, 10, 5, 3, 2, 1), 1

    def __init__(self):
        super().__init__()
        from torchvision.models import detection
        from torchvision.models.detection.image_list import ImageList
        self.ssd = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        with torch.device("cpu"):  # Where the generator's own numbers are, whoever builds this.
            image = ImageList(torch.zeros(1, 3, self.SIDE, self.SIDE), [(self.SIDE, self.SIDE)])
            levels = [torch.zeros(1, 1, side, side) for side in self.LEVELS]
            self.register_buffer("anchors", self.ssd.anchor_generator(image, levels)[0])

    def forward(self, images):
        heads = self.ssd.head(list(self.ssd.backbone(images).values()))
        moves = heads["bbox_regression"]
        anchors = self.anchors.repeat(len(images), 1)
        boxes = self.ssd.box_coder.decode_single(moves.flatten(0, 1), anchors)
        return boxes.view_as(moves), heads["cls_logits"][..., self.FACE].contiguous()


class Denoiser(nn.Module):
    """DnCNN-17: what sixteen convolutions of 64 channels and a last one hold for noise is taken
    off the picture."""

    def __init__(self, width=64, layers=17):
        super().__init__()
        parts = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(layers - 2):
            parts += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
                      nn.ReLU(inplace=True)]
        parts.append(nn.Conv2d(width, 3, 3, padding=1))
        for conv in parts:
            if isinstance(conv, nn.Conv2d):
                nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        with torch.no_grad():
            parts[-1].weight.mul_(0.05)  # An untrained guess: faint.
        self.noise = nn.Sequential(*parts)

    def forward(self, pictures):
        return pictures - self.noise(pictures)


def vision(name, **options):
    """torchvision's classifier of this name."""

    def build():
        import torchvision
        return getattr(torchvision.models, name)(weights=None, **options)

    return build


class Segmenter(nn.Module):
    """DeepLabV3 on ResNet-50, to its logits at an eighth of the picture's size."""

    def __init__(self):
        super().__init__()
        from torchvision.models import segmentation
        self.parts = segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None,
                                                     num_classes=21, aux_loss=False)

    def forward(self, pictures):
        return self.parts.classifier(self.parts.backbone(pictures)["out"])

    def level(self, pictures):
        """Gives all classes one mean and deviation, so that none wins wherever one looks."""
        logits = self(pictures).transpose(0, 1).flatten(1)
        scale, last = 1 / logits.std(1), self.parts.classifier[-1]
        last.bias.sub_(logits.mean(1)).mul_(scale)
        last.weight.mul_(scale.view(-1, 1, 1, 1))


def reader():
    """TrOCR-small's shape: a ViT of 384 channels reads, a decoder of 256 writes."""
    import transformers as hf
    encoder = hf.ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6,
                           intermediate_size=1536, image_size=384)
    return hf.ViTModel(encoder, add_pooling_layer=False)


def writer():
    import transformers as hf
    decoder = hf.TrOCRConfig(vocab_size=64044, d_model=256, decoder_layers=6,
                             decoder_attention_heads=8, decoder_ffn_dim=1024,
                             cross_attention_hidden_size=384, is_decoder=True,
                             tie_word_embeddings=False, init_std=0.06)
    return hf.TrOCRForCausalLM(decoder)


def bert(head, **options):
    """BERT-base with one of transformers' heads."""

    def build():
        import transformers as hf
        return getattr(hf, head)(hf.BertConfig(**options))

    return build


@dataclasses.dataclass(frozen=True)
class Spec:
    build: typing.Callable
    seed: int
    calibration: tuple = ()  # The shape of a picture, for models with batch normalisation.


TABLE = {
    "traffic-detector": Spec(Detector, 11, (3, 320, 320)),
    "resnet50-cars": Spec(vision("resnet50"), 12, (3, 224, 224)),
    "resnet50-persons": Spec(vision("resnet50"), 13, (3, 224, 224)),
    "denoiser": Spec(Denoiser, 14, (3, 64, 64)),
    "segmenter": Spec(Segmenter, 15, (3, 256, 256)),
    "face-detector": Spec(FaceDetector, 16, (3, 320, 320)),
    "resnet50-faces": Spec(vision("resnet50"), 17, (3, 112, 112)),
    "resnet50": Spec(vision("resnet50"), 18, (3, 224, 224)),
    "alexnet": Spec(vision("alexnet"), 19),
    "vgg11": Spec(vision("vgg11"), 20),
    "ocr-encoder": Spec(reader, 21),
    "ocr-decoder": Spec(writer, 22),
    "bert-topics": Spec(bert("BertForSequenceClassification", num_labels=20), 23),
    "bert-stars": Spec(bert("BertForSequenceClassification", num_labels=5), 24),
    "bert-reply": Spec(bert("BertForMaskedLM"), 25),
}


def ready(name, device):
    """The model of this name on `device`, ready for inference."""
    return state.load(name, TABLE[name], device)
