"""Normalisations go into weights where that is exact, become expressions elsewhere, and stay where they must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph
from engine.passes.fold_batch_norm import fold_batch_norm
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import FOLDED, applied, assert_untouched, expressions, names, types

RANDOM = np.random.default_rng(3)
OUT = op("pnnx.Output", "out", "9")


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def norm(channels: int, inputs: str, outputs: str, type: str = "nn.BatchNorm2d", affine: bool = True) -> Operator:
    given = {"running_mean": array(channels), "running_var": array(channels) ** 2 + 0.5}
    if affine:
        given |= {"weight": array(channels), "bias": array(channels)}
    return op(type, "bn", inputs, outputs, affine=affine, eps=1e-3, num_features=channels, **given)


def conv(type: str, shape: tuple[int, ...], inputs: str, outputs: str, bias: int = 0, **params: Any) -> Operator:
    given = {"weight": array(*shape), **({"bias": array(bias)} if bias else {})}
    return op(type, "conv", inputs, outputs, **{"bias": bool(bias), **params, **given})


BEFORE = [
    ("nn.Conv1d", (6, 4, 3), (2, 4, 9), "nn.BatchNorm1d", 6, {"padding": (1,)}),
    ("nn.Conv2d", (6, 4, 3, 3), (2, 4, 5, 5), "nn.BatchNorm2d", 6, {"padding": (1, 1), "stride": (2, 2)}),
    ("nn.Conv2d", (6, 2, 3, 3), (2, 4, 5, 5), "nn.BatchNorm2d", 6, {"groups": 2, "padding": "same"}),
    ("nn.Conv2d", (8, 1, 3, 3), (2, 4, 5, 5), "nn.BatchNorm2d", 8, {"groups": 4, "dilation": (2, 2)}),
    ("nn.Conv3d", (6, 4, 1, 2, 3), (1, 4, 3, 3, 3), "nn.BatchNorm3d", 6, {}),
    ("nn.ConvTranspose2d", (4, 6, 3, 3), (2, 4, 5, 5), "nn.BatchNorm2d", 6, {"stride": (2, 2)}),
    ("nn.ConvTranspose2d", (4, 3, 3, 3), (2, 4, 5, 5), "nn.BatchNorm2d", 6, {"groups": 2, "padding": (1, 1)}),
    ("nn.Linear", (6, 4), (3, 4), "nn.BatchNorm1d", 6, {}),
]


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize(("type", "weight", "shape", "norm_type", "channels", "params"), BEFORE, ids=str)
def test_a_normalisation_goes_into_the_layer_that_feeds_it(
    type: str,
    weight: tuple[int, ...],
    shape: tuple[int, ...],
    norm_type: str,
    channels: int,
    params: dict[str, Any],
    bias: bool,
) -> None:
    graph = built(
        INPUT,
        conv(type, weight, "0", "1", channels * bias, **params),
        norm(channels, "1", "9", norm_type, affine=bias),
        OUT,
        _0=shape,
    )
    made = applied(fold_batch_norm, graph, close=FOLDED)
    assert names(made) == ["conv"]
    assert made.outputs[0].operand == "9"
    assert made.source.operators[1].params["bias"] is True
    assert made.source.operators[1].attributes["weight"].dtype == F32


@pytest.mark.parametrize(
    ("type", "weight", "module"),
    [
        ("F.conv2d", (6, 2, 3, 3), "nn.Conv2d"),
        ("F.conv_transpose2d", (4, 3, 3, 3), "nn.ConvTranspose2d"),
        ("F.linear", (6, 4), "nn.Linear"),
    ],
)
def test_a_function_with_stored_weights_becomes_the_module(type: str, weight: tuple[int, ...], module: str) -> None:
    is_linear = module == "nn.Linear"
    params = {} if is_linear else {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 2}
    graph = built(
        INPUT,
        op("pnnx.Attribute", "w", "", "w", data=array(*weight)),
        op(type, "f", "0 w", "1", bias=None, labels=("input", "weight"), **params),
        norm(6, "1", "9", "nn.BatchNorm1d" if is_linear else "nn.BatchNorm2d"),
        OUT,
        _0=(3, 4) if is_linear else (2, 4, 5, 5),
    )
    made = applied(fold_batch_norm, graph, close=FOLDED)
    assert types(made) == ["pnnx.Attribute", module]
    assert made.source.operators[2].inputs == ("0",)


def test_statistics_may_be_operands_of_the_function() -> None:
    graph = built(
        INPUT,
        op("pnnx.Attribute", "m", "", "m", data=array(6)),
        op("pnnx.Attribute", "v", "", "v", data=array(6) ** 2),
        conv("nn.Conv2d", (6, 4, 1, 1), "0", "1"),
        op("F.batch_norm", "bn", "1 v m", "9", eps=1e-5, weight=None, bias=None,
           labels=("input", "running_var", "running_mean")),
        OUT,
        _0=(2, 4, 3, 3),
    )  # fmt: skip
    assert types(applied(fold_batch_norm, graph, close=FOLDED)) == ["pnnx.Attribute", "pnnx.Attribute", "nn.Conv2d"]


@pytest.mark.parametrize(
    ("type", "weight", "shape", "params"),
    [
        ("nn.Conv2d", (4, 6, 3, 3), (2, 6, 5, 5), {}),
        ("nn.Conv2d", (4, 3, 3, 3), (2, 6, 5, 5), {"groups": 2, "padding": "valid"}),
        ("nn.Conv2d", (4, 6, 3, 3), (2, 6, 5, 5), {"padding": (1, 1), "padding_mode": "reflect"}),
        ("nn.Conv2d", (4, 6, 1, 1), (2, 6, 5, 5), {"padding": "same"}),
        ("nn.Linear", (4, 6), (3, 6), {}),
    ],
    ids=str,
)
def test_a_normalisation_goes_into_the_convolution_after_it(
    type: str, weight: tuple[int, ...], shape: tuple[int, ...], params: dict[str, Any]
) -> None:
    for bias in (0, 4):
        graph = built(
            INPUT,
            norm(6, "0", "1", "nn.BatchNorm1d" if type == "nn.Linear" else "nn.BatchNorm2d"),
            conv(type, weight, "1", "9", bias, **params),
            OUT,
            _0=shape,
        )
        assert names(applied(fold_batch_norm, graph, close=FOLDED)) == ["conv"]


@pytest.mark.parametrize(
    ("type", "weight", "params"),
    [
        ("nn.Conv2d", (4, 6, 3, 3), {"padding": (1, 1)}),
        ("nn.Conv2d", (4, 6, 3, 3), {"padding": "same"}),
        ("nn.ConvTranspose2d", (6, 4, 3, 3), {}),
    ],
    ids=str,
)
def test_where_zeros_come_in_between_it_becomes_an_expression(
    type: str, weight: tuple[int, ...], params: dict[str, Any]
) -> None:
    graph = built(INPUT, norm(6, "0", "1"), conv(type, weight, "1", "9", **params), OUT, _0=(2, 6, 5, 5))
    made = applied(fold_batch_norm, graph)
    assert types(made) == ["pnnx.Attribute", "pnnx.Attribute", "pnnx.Expression", type]
    assert names(made)[2] == "bn"


@pytest.mark.parametrize(
    ("shape", "type"),
    [((3, 6), "nn.BatchNorm1d"), ((3, 6, 5), "nn.BatchNorm1d"), ((None, 6, None, None), "nn.BatchNorm2d")],
)
@pytest.mark.parametrize("affine", [True, False])
def test_alone_it_becomes_a_multiplication_and_an_addition_of_the_same_bits(
    shape: tuple[int | None, ...], type: str, affine: bool
) -> None:
    graph = built(INPUT, norm(6, "0", "9", type, affine), OUT, _0=shape, _9=shape)
    made = applied(fold_batch_norm, graph)
    assert expressions(made) == ["add(mul(@0,@1),@2)"]
    assert made.operands["bn_scale"].spec == made.operands["bn_shift"].spec


def two_users() -> RuntimeGraph:
    return built(
        INPUT,
        conv("nn.Conv2d", (6, 4, 1, 1), "0", "1"),
        norm(6, "1", "2"),
        op("torch.add", "sum", "1 2", "9"),
        OUT,
        _0=(2, 4, 3, 3),
    )


def returned_too() -> RuntimeGraph:
    return built(
        INPUT,
        conv("nn.Conv2d", (6, 4, 1, 1), "0", "1"),
        norm(6, "1", "9"),
        OUT,
        op("pnnx.Output", "out_1", "1"),
        _0=(2, 4, 3, 3),
    )


def other_axis() -> RuntimeGraph:
    return built(INPUT, conv("nn.Linear", (5, 4), "0", "1"), norm(6, "1", "9", "nn.BatchNorm1d"), OUT, _0=(2, 6, 4))


@pytest.mark.parametrize("make", [two_users, returned_too, other_axis])
def test_a_layer_with_another_consumer_or_other_channels_keeps_its_weights(make: Any) -> None:
    made = applied(fold_batch_norm, make())
    assert "pnnx.Expression" in types(made)
    before = next(o for o in make().source.operators if o.name == "conv")
    after = next(o for o in made.source.operators if o.name == "conv")
    assert after.params == before.params


def test_batch_statistics_stay() -> None:
    graph = built(
        INPUT,
        conv("nn.Conv2d", (6, 4, 1, 1), "0", "1"),
        op("F.batch_norm", "bn", "1", "9", eps=1e-5, running_mean=None, running_var=None, weight=None, bias=None),
        OUT,
        _0=(2, 4, 3, 3),
    )
    assert_untouched(fold_batch_norm, graph)


def test_half_precision_stays() -> None:
    half = {key: array(6).astype(np.float16) ** 2 for key in ("running_mean", "running_var")}
    graph = built(
        INPUT,
        op("Tensor.to", "half", "0", "1", dtype="torch.half"),
        op("nn.BatchNorm2d", "bn", "1", "9", affine=False, eps=1e-3, num_features=6, **half),
        OUT,
        _0=(2, 6, 3, 3),
    )
    assert_untouched(fold_batch_norm, graph)


def test_weights_that_are_not_stored_stay() -> None:
    graph = built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "w"),
        op("F.conv2d", "conv", "0 w", "1", bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1,
           labels=("input", "weight")),
        norm(6, "1", "9"),
        OUT,
        _0=(2, 4, 3, 3),
        _w=(6, 4, 1, 1),
    )  # fmt: skip
    made = applied(fold_batch_norm, graph)
    assert types(made) == ["F.conv2d", "pnnx.Attribute", "pnnx.Attribute", "pnnx.Expression"]


def test_a_scale_that_is_not_finite_is_not_folded() -> None:
    bn = op("nn.BatchNorm2d", "bn", "1", "9", affine=False, eps=0.0, num_features=6, running_mean=array(6),
            running_var=np.zeros(6, F32))  # fmt: skip
    graph = built(INPUT, conv("nn.Conv2d", (6, 4, 1, 1), "0", "1"), bn, OUT, _0=(2, 4, 3, 3))
    assert types(applied(fold_batch_norm, graph)) == [
        "nn.Conv2d",
        "pnnx.Attribute",
        "pnnx.Attribute",
        "pnnx.Expression",
    ]


def test_two_normalisations_in_a_row_both_go_into_the_convolution() -> None:
    second = op("nn.BatchNorm2d", "bn2", "2", "9", **norm(6, "", "").params,
                **{key: each.data for key, each in norm(6, "", "").attributes.items()})  # fmt: skip
    graph = built(INPUT, conv("nn.Conv2d", (6, 4, 1, 1), "0", "1"), norm(6, "1", "2"), second, OUT, _0=(2, 4, 3, 3))
    once = applied(fold_batch_norm, graph, close=FOLDED)
    assert names(applied(fold_batch_norm, once, close=FOLDED)) == ["conv"]
