"""Samples of quantisation.

Quantised modules are written by hand, as the catalogue of the format has them: the converter looks for module paths of
old releases of PyTorch. Its weights are quantised per channel; of others it does not write the scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from record import Sample
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.ao.nn import quantized

X = torch.tensor([[-3.0, -0.26, 0.0, 0.25], [0.75, 1.2, 60.0, 0.13]])

IMAGE, ROWS = torch.randn(2, 4, 7, 6), torch.randn(3, 5, 12)
FIRST, SECOND = (0.03, 120), (0.07, 60)  # scale and zero point


def with_weight(module: nn.Module, weight: Tensor, zero_points: Tensor | None = None) -> nn.Module:
    """A quantised module with this weight, quantised for every output channel."""
    scales = weight.abs().flatten(1).amax(1).double() / 120
    zeros = torch.zeros(len(weight), dtype=torch.int64) if zero_points is None else zero_points
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.set_weight_bias(torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8), torch.randn(len(weight)))
    module.scale, module.zero_point = SECOND
    return module


def parts(name: str, module: nn.Module) -> dict[str, np.ndarray]:
    """Return the archive's arrays of a quantised module."""
    weight = module.weight()
    return {
        f"{name}.bias": module.bias().detach().numpy(),
        f"{name}.weight": weight.int_repr().numpy(),
        f"{name}.weight.q_per_channel_scales": weight.q_per_channel_scales().numpy(),
        f"{name}.weight.q_per_channel_zero_points": weight.q_per_channel_zero_points().numpy(),
    }


def lines(x: Tensor, *operators: str) -> str:
    """A file: the input, quantised as q, operators down to one that makes r, and r as numbers again."""
    made = sum(int(each.split()[3]) for each in operators) + 3
    shape = ",".join(map(str, x.shape))
    return "\n".join([
        "7767517",
        f"{len(operators) + 4} {made}",
        f"pnnx.Input pnnx_input_0 0 1 x #x=({shape})f32",
        f"nn.quantized.Quantize quant 1 1 x q dtype=torch.quint8 scale={FIRST[0]} zero_point={FIRST[1]}",
        *operators,
        "nn.quantized.DeQuantize dequant 1 1 r y",
        "pnnx.Output pnnx_output_0 1 0 y",
        "",
    ])  # fmt: skip


def declared(attributes: dict[str, np.ndarray]) -> str:
    codes = {"int8": "i8", "int64": "i64", "float32": "f32", "float64": "f64"}
    return " ".join(
        f"@{name.partition('.')[2]}=({','.join(map(str, each.shape))}){codes[str(each.dtype)]}"
        for name, each in attributes.items()
    )


def between(call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The call on what is quantised as q."""

    def run(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(torch.quantize_per_tensor(x, *FIRST, torch.quint8)).dequantize()

    return run


def conv(name: str, channels: tuple[int, int], kernel: tuple[int, int], zeros: bool = False, **options: object) -> Sample:
    module = quantized.Conv2d(*channels, kernel, **options)
    weight = torch.randn(channels[1], channels[0] // module.groups, *kernel)
    module = with_weight(module, weight, torch.randint(-3, 4, (channels[1],)) if zeros else None)
    attributes = parts("conv", module)
    settings = (
        f"bias=False dilation=({module.dilation[0]},{module.dilation[1]}) groups={module.groups} in_channels={channels[0]}"
        f" kernel_size=({kernel[0]},{kernel[1]}) out_channels={channels[1]} padding=({module.padding[0]},{module.padding[1]})"
        f" padding_mode=zeros scale={SECOND[0]} stride=({module.stride[0]},{module.stride[1]}) zero_point={SECOND[1]}"
    )
    text = lines(IMAGE, f"nn.quantized.Conv2d conv 1 1 q r {settings} {declared(attributes)}")
    return Sample(name, between(module), (IMAGE,), param=text, attributes=attributes)


def linear(name: str, x: Tensor) -> Sample:
    module = with_weight(quantized.Linear(12, 9), torch.randn(9, 12))
    attributes = parts("fc", module)
    settings = f"in_features=12 out_features=9 scale={SECOND[0]} zero_point={SECOND[1]} {declared(attributes)}"
    text = lines(x, f"nn.quantized.Linear fc 1 1 q r {settings}")
    return Sample(name, between(module), (x,), param=text, attributes=attributes)


def small() -> Sample:
    """A convolution, ReLU, pooling and a linear map, as a quantised classifier has them."""
    first = with_weight(quantized.Conv2d(4, 6, (3, 3)), torch.randn(6, 4, 3, 3))
    last = with_weight(quantized.Linear(24, 5), torch.randn(5, 24))
    attributes = {**parts("conv", first), **parts("fc", last)}
    conv_parts, fc_parts = ({k: v for k, v in attributes.items() if k.startswith(name)} for name in ("conv", "fc"))
    operators = [
        f"nn.quantized.Conv2d conv 1 1 q a bias=False dilation=(1,1) groups=1 in_channels=4 kernel_size=(3,3) out_channels=6"
        f" padding=(0,0) padding_mode=zeros scale={SECOND[0]} stride=(1,1) zero_point={SECOND[1]} {declared(conv_parts)}",
        "nn.ReLU relu 1 1 a b",
        "nn.MaxPool2d pool 1 1 b c ceil_mode=False dilation=(1,1) kernel_size=(2,2) padding=(0,0) return_indices=False stride=(2,2)",
        "torch.flatten flat 1 1 c d end_dim=-1 start_dim=1",
        f"nn.quantized.Linear fc 1 1 d r in_features=24 out_features=5 scale={SECOND[0]} zero_point={SECOND[1]} {declared(fc_parts)}",
    ]
    pool = nn.MaxPool2d(2)
    call = between(lambda q: last(torch.flatten(pool(torch.relu(first(q))), 1)))
    return Sample("quantised_classifier", call, (IMAGE,), param=lines(IMAGE, *operators), attributes=attributes)


def joined(q: Tensor) -> Tensor:
    return torch.ops.quantized.cat([q, torch.relu(q)], 1, 0.05, 40)


SAMPLES = [
    Sample("quantize_dequantize", lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).dequantize(), (X,)),
    Sample("quantize_signed", lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8).dequantize(), (X,)),
    Sample("quantize_int", lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint32).int_repr(), (X,)),
    Sample("fake_quantize", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), (X,)),
    Sample(
        "fake_quantize_channel",
        lambda x: torch.fake_quantize_per_channel_affine(
            x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1], dtype=torch.int32), 0, -128, 127
        ),
        (X,),
    ),
    conv("quantised_conv", (4, 6), (3, 3)),
    conv("quantised_conv_options", (4, 6), (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
    conv("quantised_conv_depthwise", (4, 4), (3, 3), padding=1, groups=4),
    conv("quantised_conv_pointwise", (4, 8), (1, 1)),
    linear("quantised_linear", ROWS),
    linear("quantised_linear_rows", ROWS[0]),
    Sample(
        "quantised_cat",
        between(joined),
        (IMAGE,),
        param=lines(
            IMAGE,
            "F.relu relu 1 1 q p $input=q",
            "pnnx.Expression list 2 1 q p l expr=[@0,@1]",
            "nn.quantized.cat cat 1 1 l r dim=1 scale=0.05 zero_point=40",
        ),
    ),
    small(),
]
