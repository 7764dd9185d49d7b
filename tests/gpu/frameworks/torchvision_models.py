"""Forward passes of torchvision's architectures with random weights: classification, segmentation,
detection, video, optical flow."""
import cases
import models
import torchvision.models as zoo

ALL = ("half", "bfloat16", "channels_last", "half_channels_last")
# name -> (image size, further variants)
CLASSIFIERS = {
    "alexnet": (224, ("half",)),
    "vgg11_bn": (128, ("bfloat16",)),
    "resnet18": (224, ALL),
    "resnext50_32x4d": (160, ("channels_last",)),
    "wide_resnet50_2": (128, ()),
    "densenet121": (128, ("half",)),
    "googlenet": (128, ()),
    "inception_v3": (299, ("half",)),
    "mobilenet_v2": (224, ("half_channels_last",)),
    "mobilenet_v3_small": (224, ()),
    "efficientnet_b0": (224, ("bfloat16", "channels_last")),
    "efficientnet_v2_s": (128, ()),
    "shufflenet_v2_x1_0": (224, ()),
    "squeezenet1_1": (224, ("half",)),
    "mnasnet1_0": (128, ()),
    "regnet_y_400mf": (128, ()),
    "convnext_tiny": (128, ("half", "channels_last")),
    "vit_b_16": (224, ("half", "bfloat16")),
    "swin_t": (224, ("half",)),
    "swin_v2_t": (256, ()),
    "maxvit_t": (224, ("bfloat16",)),
}


def classifier(name, size, variants):
    extra = {
        "init_weights": False,
        "aux_logits": False
    } if name in ("googlenet", "inception_v3") else {}
    models.add(name, lambda: zoo.get_model(name, weights=None, **extra), lambda torch:
               ((torch.randn(4, 3, size, size),), {}), variants)


for one, (edge, kinds) in CLASSIFIERS.items():
    classifier(one, edge, kinds)

for one in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    models.add(one, lambda one=one: zoo.get_model(one, weights=None, weights_backbone=None),
               lambda torch: (
                   (torch.randn(2, 3, 128, 128),), {}), ("half",) if one.startswith("fcn") else ())

# Detectors choose boxes by score on the device, with sizes that the host must learn: many small
# synchronising copies.
for one in ("ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn",
            "retinanet_resnet50_fpn"):
    models.add(one, lambda one=one: zoo.get_model(one, weights=None, weights_backbone=None),
               lambda torch: (([*torch.rand(2, 3, 320, 320)],), {}), checked=False)

models.add("r3d_18", lambda: zoo.get_model("r3d_18", weights=None), lambda torch:
           ((torch.randn(1, 3, 8, 64, 64),), {}), ("half",))
models.add("raft_small", lambda: zoo.get_model("raft_small", weights=None),
           lambda torch: ((torch.rand(1, 3, 128, 160), torch.rand(1, 3, 128, 160)), {}))

cases.main()
