"""Forward passes of timm's architectures with random weights: mixers, hybrids, transformers of many
shapes, normaliser-free nets."""
import cases
import models
import timm

# name -> (image size or None for the model's own, further variants)
MODELS = {
    "resnetv2_50": (160, ("half",)),
    "ecaresnet26t": (160, ()),
    "vit_tiny_patch16_224": (224, ("half", "bfloat16")),
    "deit3_small_patch16_224": (224, ("bfloat16",)),
    "beit_base_patch16_224": (224, ()),
    "mixer_s16_224": (224, ("half",)),
    "resmlp_12_224": (224, ()),
    "gmlp_ti16_224": (224, ()),
    "convmixer_768_32": (112, ("channels_last",)),
    "poolformer_s12": (160, ()),
    "pvt_v2_b0": (160, ("half",)),
    "crossvit_tiny_240": (240, ()),
    "levit_128s": (224, ()),
    "xcit_tiny_12_p16_224": (224, ()),
    "nfnet_l0": (160, ("channels_last",)),
    "edgenext_xx_small": (160, ()),
    "mobilevit_xxs": (192, ("half",)),
    "efficientformer_l1": (224, ()),
    "hrnet_w18_small": (160, ()),
    "dla34": (160, ()),
    "ghostnet_100": (160, ()),
    "repvgg_a0": (160, ("channels_last",)),
    "davit_tiny": (224, ("bfloat16",)),
    "focalnet_tiny_srf": (224, ()),
    "tf_efficientnet_lite0": (160, ("half",)),
    "eva02_tiny_patch14_224": (224, ()),
}

for name, (size, variants) in MODELS.items():
    models.add(name, lambda name=name: timm.create_model(name, pretrained=False),
               lambda torch, size=size: ((torch.randn(2, 3, size, size),), {}), variants)

cases.main()
