"""Layers of pictures with dynamic height and width: one program is right at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.pnnx import Operator
from tests.engine.compiler.dynamic.checking import check
from tests.engine.graph.build import conv, op

IMAGE = (1, 5, None, None)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize(mode: str, **given: Any) -> Operator:
    return op("Resize", "resize", "0", "1", mode=mode, **given)


@pytest.mark.parametrize("places", ["half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_elements_repeated_by_nearest(places: str, rounding: str, factor: float) -> None:
    given = {"coordinate_transformation_mode": places, "scales": (1.0, 1.0, factor, 2.0)}
    check([resize("nearest", nearest_mode=rounding, **given)], IMAGE, (40, 36), tolerance=0)


@pytest.mark.parametrize(
    "places", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"]
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resampling_by_any_scale(places: str, mode: str) -> None:
    given = {"coordinate_transformation_mode": places, "scales": (1.0, 1.0, 1.7, 0.6)}
    tolerance = 0 if mode == "nearest" else 1e-6
    check([resize(mode, **given)], IMAGE, (40, 36), tolerance=tolerance, most_guards=8)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resampling_joins_what_follows(mode: str) -> None:
    layers = [resize(mode, scales=(1.0, 1.0, 2.0, 2.0)), op("nn.ReLU", "relu", "1", "2")]
    check(layers, IMAGE, (40, 36), tolerance=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("factor", [(2.0, 2.0), (1.7, 0.6)])
@pytest.mark.parametrize("align_corners", [None, True])
def test_interpolation(mode: str, factor: tuple[float, float], align_corners: bool | None) -> None:
    if align_corners and mode.startswith("nearest"):
        align_corners = None
    layer = op("F.interpolate", "up", "0", "1", mode=mode, scale_factor=factor, align_corners=align_corners)
    check([layer], IMAGE, (40, 36), tolerance=1e-6, most_guards=8)


def test_volumes_and_signals_are_resampled() -> None:
    scales = (1.0, 1.0, 1.5, 2.0, 0.7)
    check([resize("linear", scales=scales)], (1, 3, None, None, 5), (24, 20), tolerance=1e-6, most_guards=8)
    check([resize("linear", scales=scales[:3])], (1, 3, None), (24,), tolerance=1e-6)


@pytest.mark.parametrize("mode", ["max", "average"])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (5, 1, 2), (3, 3, 0)])
def test_pooling(mode: str, kernel: int, stride: int, padding: int) -> None:
    given: dict[str, Any] = {"kernel_size": (kernel, kernel), "stride": (stride, stride), "padding": (padding, padding)}
    if mode == "max":
        layer = op("nn.MaxPool2d", "pool", "0", "1", dilation=(1, 1), ceil_mode=False, return_indices=False, **given)
    else:
        layer = op("nn.AvgPool2d", "pool", "0", "1", ceil_mode=False, count_include_pad=False, **given)
    check([layer], IMAGE, (32, 24))


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 3, 0), (3, 1, 1)])
@pytest.mark.parametrize("channels", [4, 19])
def test_transposed_convolution(kernel: int, stride: int, padding: int, channels: int) -> None:
    random = np.random.default_rng(kernel)
    layer = op(
        "nn.ConvTranspose2d", "up", "0", "1", in_channels=5, out_channels=channels, kernel_size=(kernel, kernel),
        stride=(stride, stride), padding=(padding, padding), output_padding=(0, 0), dilation=(1, 1), groups=1,
        weight=random.standard_normal((5, channels, kernel, kernel)).astype(np.float32),
        bias=random.standard_normal(channels).astype(np.float32),
    )  # fmt: skip
    check([layer], IMAGE, (40, 36), tolerance=1e-5, most_guards=6)


@pytest.mark.parametrize("threads", [1, 2])
def test_winograd_at_fewer_tiles_than_a_block(threads: int) -> None:
    layers = [conv("one", "0", "1", (32, 48), padding=(1, 1)), op("nn.ReLU", "relu", "1", "2")]
    template = check(layers, (1, 32, None, None), (64, 64), tolerance=1e-4, threads=threads)
    assert "winograd" in template.executable.steps.kinds


def test_rows_shorter_than_a_vector_and_strided() -> None:
    layers = [op("torch.permute", "turn", "0", "1", dims=(0, 1, 3, 2)), op("nn.GELU", "gelu", "1", "2")]
    check(layers, IMAGE, (32, 24), tolerance=1e-6)


def test_a_pyramid_needs_two_guards() -> None:
    layers = [
        op("nn.MaxPool2d", "a", "0", "1", kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1),
           ceil_mode=False, return_indices=False),
        op("nn.MaxPool2d", "b", "1", "2", kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1),
           ceil_mode=False, return_indices=False),
        op("F.interpolate", "c", "2", "3", mode="nearest", scale_factor=(2.0, 2.0)),
        op("torch.cat", "d", "3 1", "4", dim=1),
        op("F.interpolate", "e", "4", "5", mode="nearest", scale_factor=(2.0, 2.0)),
        op("torch.cat", "f", "5 0", "6", dim=1),
    ]  # fmt: skip
    check(layers, IMAGE, (32, 24), most_guards=6, sizes=[4 * each for each in range(1, 25)])


@pytest.mark.parametrize("dilation", [2, 3, 8])
@pytest.mark.parametrize("kernel", [3, 5])
def test_dilated_convolution_of_uneven_pictures(dilation: int, kernel: int) -> None:
    margin = dilation * (kernel // 2)
    layer = conv("one", "0", "1", (32, 32), (kernel, kernel), dilation=(dilation, dilation), padding=(margin, margin))
    sizes = [31, 32, 33, 34, 37, 40, 41, 47, 48, 53, 63, 64, 65, 72, 79, 80, 81, 96, 97, 100, 113, 127, 128, 129]
    check([layer], (1, 32, None, None), (96, 96), tolerance=1e-4, sizes=sizes, least=97)


@pytest.mark.parametrize("mode", ["max", "average"])
def test_pooling_that_rounds_up(mode: str) -> None:
    given: dict[str, Any] = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (0, 0), "ceil_mode": True}
    if mode == "max":
        layer = op("nn.MaxPool2d", "pool", "0", "1", dilation=(1, 1), return_indices=False, **given)
    else:
        layer = op("nn.AvgPool2d", "pool", "0", "1", count_include_pad=False, **given)
    check([layer], IMAGE, (32, 24))


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@pytest.mark.parametrize("size", [(1, 1), (3, 5)])
def test_adaptive_pooling(kind: str, size: tuple[int, int]) -> None:
    layer = op(f"nn.Adaptive{kind}Pool2d", "pool", "0", "1", output_size=size)
    if kind == "Max":
        layer.params["return_indices"] = False
    check([layer], (2, 37, None, None), (40, 36), most_guards=8)


def test_pooling_a_whole_picture_joins_convolutions() -> None:
    layers = [
        conv("one", "0", "1", (5, 16), stride=(2, 2)), op("nn.ReLU", "relu", "1", "2"),
        op("nn.AdaptiveAvgPool2d", "pool", "2", "3", output_size=(1, 1)), conv("two", "3", "4", (16, 7), (1, 1)),
    ]  # fmt: skip
    check(layers, IMAGE, (64, 48), tolerance=1e-5, least=48)


@pytest.mark.parametrize(
    ("name", "given"),
    [("nn.InstanceNorm2d", {"num_features": 6}), ("nn.GroupNorm", {"num_groups": 3, "num_channels": 6})],
)
def test_normalisation_over_pictures(name: str, given: dict[str, Any]) -> None:
    weights: dict[str, Any] = {
        "affine": True, "weight": np.linspace(0.5, 2, 6, dtype=np.float32), "bias": np.ones(6, np.float32)
    }  # fmt: skip
    if name == "nn.InstanceNorm2d":
        weights["track_running_stats"] = False
    check([op(name, "norm", "0", "1", eps=1e-5, **given, **weights)], (1, 6, None, None), (40, 36), tolerance=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        op("nn.PixelShuffle", "move", "0", "1", upscale_factor=2),
        op("nn.PixelUnshuffle", "move", "0", "1", downscale_factor=2),
        op("nn.ChannelShuffle", "move", "0", "1", groups=2),
        op("DepthToSpace", "move", "0", "1", blocksize=2, mode="CRD"),
        op("DepthToSpace", "move", "0", "1", blocksize=2, mode="DCR"),
        op("SpaceToDepth", "move", "0", "1", blocksize=2),
        op("F.pad", "move", "0", "1", pad=(1, 2, 3, 1), mode="constant", value=2.0),
        op("F.pad", "move", "0", "1", pad=(1, 2, 3, 1), mode="reflect", value=None),
        op("F.pad", "move", "0", "1", pad=(1, 2, 3, 1), mode="replicate", value=None),
        op("torch.flip", "move", "0", "1", dims=(2, 3)),
        op("torch.roll", "move", "0", "1", shifts=(1, 2), dims=(2, 3)),
        op("Tensor.repeat", "move", "0", "1", sizes=(1, 2, 1, 2)),
    ],
    ids=lambda layer: layer.type + str(layer.params.get("mode", "")),
)
def test_elements_moved(layer: Operator) -> None:
    check([layer], (1, 8, None, None), (40, 36), tolerance=0, most_guards=8)


@pytest.mark.parametrize("threads", [1, 2])
def test_convolution_of_volumes(threads: int) -> None:
    layer = conv("one", "0", "1", (32, 32), (3, 3, 3), padding=(1, 1, 1))
    sizes = [2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 20, 23, 24, 25]
    check([layer], (1, 32, None, None, None), (16, 20, 24), tolerance=1e-4, threads=threads, sizes=sizes, least=20)
