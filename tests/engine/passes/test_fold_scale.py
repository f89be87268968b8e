"""A constant factor and summand for each channel go into the weights before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph
from engine.passes.fold_scale import fold_scale
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import FOLDED, applied, assert_untouched, names, types

RANDOM = np.random.default_rng(7)


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def conv_then(text: str, *constants: np.ndarray, type: str = "nn.Conv2d", shape: Any = (2, 4, 5, 5)) -> RuntimeGraph:
    """A layer of 6 output channels, then the expression of it (@0) and some constants (@1, ...)."""
    weights = {"nn.Conv2d": (6, 4, 3, 3), "nn.ConvTranspose2d": (4, 6, 3, 3), "nn.Linear": (6, 4)}
    names = [f"c{k}" for k in range(len(constants))]
    return built(
        INPUT,
        op(type, "layer", "0", "1", weight=array(*weights[type]), bias=array(6)),
        *(op("pnnx.Attribute", name, "", name, data=each) for name, each in zip(names, constants, strict=True)),
        op("pnnx.Expression", "e", " ".join(["1", *names]), "2", expr=text),
        op("pnnx.Output", "out", "2"),
        _0=shape,
    )


C = array(6, 1, 1)

FOLDED_TEXTS: list[tuple[str, tuple[np.ndarray, ...]]] = [
    ("mul(@0,0.125)", ()),
    ("div(@0,3)", ()),
    ("sub(1,@0)", ()),
    ("neg(@0)", ()),
    ("add(mul(@0,2.0),3)", ()),
    ("add(mul(@1,@0),@2)", (C, array(1, 6, 1, 1))),
    ("div(sub(@0,@1),@2)", (C, np.abs(C) + 1)),
    ("mul(@0,@1)", (array(1),)),
    ("mul(@0,@1)", (np.array(1.5, F32),)),
]


@pytest.mark.parametrize(("text", "constants"), FOLDED_TEXTS, ids=lambda each: each if isinstance(each, str) else "")
@pytest.mark.parametrize("type", ["nn.Conv2d", "nn.ConvTranspose2d"])
def test_a_line_goes_into_the_weights(text: str, constants: tuple[np.ndarray, ...], type: str) -> None:
    made = applied(fold_scale, conv_then(text, *constants, type=type), close=FOLDED)
    assert "pnnx.Expression" not in types(made)
    assert made.outputs[0].operand == "2"


def test_a_linear_layer_has_its_channels_last() -> None:
    graph = conv_then("add(mul(@0,@1),@2)", array(6), array(1, 6), type="nn.Linear", shape=(2, 3, 4))
    assert "pnnx.Expression" not in types(applied(fold_scale, graph, close=FOLDED))
    other_axis = conv_then("mul(@0,@1)", array(3, 1), type="nn.Linear", shape=(2, 3, 4))
    assert_untouched(fold_scale, other_axis)


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("add(@0,@1)", (array(3),)),
        ("mul(@0,@1)", (array(2, 1, 1, 1),)),
        ("add(@0,@1)", (array(1, 1, 6, 1, 1),)),
        ("mul(@0,@1)", (C.astype(np.float64),)),
        ("mul(@0,@0)", ()),
        ("add(@0,@0)", ()),
        ("div(1,@0)", ()),
        ("exp(@0)", ()),
        ("pow(@0,2)", ()),
        ("sub(add(@0,1000.0),1000.0)", ()),
        ("mul(mul(@0,3),5)", ()),
        ("div(@0,0)", ()),
        ("mul(@0,inf)", ()),
    ],
)
def test_anything_else_stays(text: str, constants: tuple[np.ndarray, ...]) -> None:
    assert_untouched(fold_scale, conv_then(text, *constants))


def test_other_spellings_of_a_line_go_too() -> None:
    graph = built(
        INPUT,
        op("nn.Linear", "layer", "0", "1", bias=False, weight=array(6, 4)),
        op("torch.mul", "twice", "1", "2", other=2.0),
        op("pnnx.Output", "out", "2"),
        _0=(2, 4),
    )
    assert names(applied(fold_scale, graph, close=FOLDED)) == ["layer"]


def test_a_summand_that_is_no_constant_stays() -> None:
    graph = built(
        INPUT,
        op("nn.Linear", "layer", "0", "1", bias=False, weight=array(4, 4)),
        op("torch.add", "sum", "1 0", "2"),
        op("pnnx.Output", "out", "2"),
        _0=(2, 4),
    )
    assert_untouched(fold_scale, graph)


def test_a_layer_with_another_consumer_keeps_its_weights() -> None:
    graph = built(
        INPUT,
        op("nn.Linear", "layer", "0", "1", bias=False, weight=array(4, 4)),
        op("torch.mul", "twice", "1", "2", other=2.0),
        op("pnnx.Output", "out", "2"),
        op("pnnx.Output", "out_1", "1"),
        _0=(2, 4),
    )
    assert_untouched(fold_scale, graph)
