"""What the model scripts share: one forward pass with random weights as a case, in several types
and memory formats."""
import cases


def outputs_of(value, prefix="out"):
    """The tensors in a model's output, by name; None and caches left out."""
    import torch
    if isinstance(value, torch.Tensor):
        return {prefix: value}
    if isinstance(value, dict) or hasattr(value, "items"):
        found = {}
        for key, part in value.items():
            found.update(outputs_of(part, f"{prefix}_{key}"))
        return found
    if isinstance(value, (list, tuple)):
        found = {}
        for index, part in enumerate(value):
            found.update(outputs_of(part, f"{prefix}{index}"))
        return found
    return {}


def cast(value, dtype, channels_last):
    import torch
    if not isinstance(value, torch.Tensor):
        return value
    value = value.to(dtype) if value.is_floating_point() else value
    return value.contiguous(
        memory_format=torch.channels_last) if channels_last and value.dim() == 4 else value


def fill_zeros(model):
    """Parameters that start as zeros (heads, biases, last scales of a residual branch) would hide
    what is before them."""
    import torch
    with torch.no_grad():
        for parameter in model.parameters():
            if not bool(parameter.any()):
                parameter.normal_(0, 0.02)
    return model


def forward(name, build, inputs, dtype, channels_last, checked):
    """Builds on the device (so that the weights come from the device's generator), runs two passes,
    returns the second's."""
    torch = cases.torch_setup()
    cases.seed(name)
    with torch.device(cases.DEVICE):
        model = fill_zeros(build().eval())
        given = inputs(torch)
    model = model.to(dtype)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    with torch.no_grad():
        args, kwargs = given if isinstance(given, tuple) else ((), given)
        args = [cast(value, dtype, channels_last) for value in args]
        kwargs = {key: cast(value, dtype, channels_last) for key, value in kwargs.items()}
        model(*args, **kwargs)
        results = outputs_of(model(*args, **kwargs))
    if checked and results:
        cases.meaningful(next(value for value in results.values() if value.is_floating_point()))
    return results


def add(name, build, inputs, variants=(), checked=True):
    """The case NAME in float, and NAME_half, NAME_bfloat16, NAME_channels_last as `variants`
    say."""
    import torch
    kinds = {
        "half": (torch.float16, False),
        "bfloat16": (torch.bfloat16, False),
        "channels_last": (torch.float32, True),
        "half_channels_last": (torch.float16, True)
    }
    for suffix, (dtype, last) in {
            "": (torch.float32, False),
            **{
                k: kinds[k] for k in variants
            }
    }.items():
        full = f"{name}_{suffix}" if suffix else name
        cases.add(
            full, lambda full=full, dtype=dtype, last=last: forward(full, build, inputs, dtype,
                                                                    last, checked))
