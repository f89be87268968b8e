"""Operators that return their operand as it is go; those that only seem to stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, TensorSpec
from engine.layers.elementwise.identity import Dropout, Identity, RawIdentity
from engine.passes.removal import identity_removal
from engine.passes.support.identities import RULES
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import applied, assert_untouched, names, types

I64 = np.dtype(np.int64)
SPEC = TensorSpec((2, 3), np.dtype(F32))


def around(type: str, given: tuple[int | None, ...] = (2, 3, 4, 4), kind: Any = F32, /, **params: Any) -> RuntimeGraph:
    """Return a graph of an operator between two ReLUs."""
    return built(
        INPUT,
        op("nn.ReLU", "before", "0", "1"),
        op(type, "it", "1", "2", **params),
        op("nn.ReLU", "after", "2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=TensorSpec(given, np.dtype(kind)),
    )


POOL = {"kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0), "ceil_mode": False}

REMOVED: list[tuple[str, dict[str, Any]]] = [
    ("nn.Dropout", {"p": 0.3}),
    ("F.dropout", {"p": 0.3, "training": False}),
    ("nn.AlphaDropout", {}),
    ("nn.Identity", {}),
    ("Tensor.clone", {}),
    ("aten::contiguous", {}),
    ("aten::detach", {}),
    ("Tensor.to", {"dtype": "torch.float"}),
    ("Tensor.to", {"dtype": None}),
    ("Tensor.reshape", {"shape": (2, -1, 4, 4)}),
    ("torch.flatten", {"start_dim": 1, "end_dim": 1}),
    ("torch.squeeze", {"dim": 1}),
    ("Tensor.unflatten", {"dim": 0, "sizes": (2,)}),
    ("Tensor.permute", {"dims": (0, 1, 2, 3)}),
    ("torch.transpose", {"dim0": -1, "dim1": 3}),
    ("Tensor.expand", {"sizes": (2, -1, 4, 4)}),
    ("Tensor.repeat", {"sizes": (1, 1, 1, 1)}),
    ("torch.cat", {"dim": 1}),
    ("Tensor.slice", {"dim": 1, "start": 0, "end": 2147483647, "step": 1}),
    ("Tensor.slice", {"dims": (1, 2), "starts": (-3, 0), "ends": (3, 9), "steps": (1, 1)}),
    ("torch.narrow", {"dim": 2, "start": 0, "length": 4}),
    ("F.pad", {"pad": (0, 0, 0, 0), "mode": "reflect"}),
    ("nn.ZeroPad2d", {"padding": (0, 0, 0, 0)}),
    ("nn.Upsample", {"scale_factor": (1.0, 1.0), "mode": "nearest"}),
    ("F.interpolate", {"size": (4, 4), "mode": "nearest-exact"}),
    ("nn.AvgPool2d", POOL),
    ("nn.MaxPool2d", {**POOL, "dilation": (1, 1), "return_indices": False}),
    ("nn.AdaptiveAvgPool2d", {"output_size": (4, 0)}),
    ("nn.AdaptiveMaxPool2d", {"output_size": (4, 4), "return_indices": False}),
    ("pnnx.Expression", {"expr": "mul(@0,1)"}),
    ("pnnx.Expression", {"expr": "div(sub(@0,0),1)"}),
    ("pnnx.Expression", {"expr": "@0"}),
]

KEPT: list[tuple[str, dict[str, Any]]] = [
    ("F.dropout", {"p": 0.3, "training": True}),
    ("Tensor.to", {"dtype": "torch.double"}),
    ("Tensor.reshape", {"shape": (3, 2, 4, 4)}),
    ("Tensor.permute", {"dims": (0, 1, 3, 2)}),
    ("torch.flip", {"dims": (0,)}),
    ("torch.roll", {"shifts": (1,), "dims": (0,)}),
    ("Tensor.slice", {"dim": 1, "start": 1, "end": 2147483647, "step": 1}),
    ("Tensor.slice", {"dim": 1, "start": 0, "end": 2147483647, "step": 2}),
    ("F.pad", {"pad": (1, -1), "mode": "constant"}),
    ("nn.Upsample", {"scale_factor": (1.0, 1.0), "mode": "bilinear", "align_corners": False}),
    ("nn.Upsample", {"scale_factor": (1.1, 1.1), "mode": "nearest"}),
    ("nn.AvgPool2d", {**POOL, "divisor_override": 2}),
    ("nn.AvgPool2d", {**POOL, "stride": (2, 2)}),
    ("nn.AdaptiveAvgPool2d", {"output_size": (4, 2)}),
    ("pnnx.Expression", {"expr": "add(@0,0)"}),
    ("pnnx.Expression", {"expr": "mul(@0,0)"}),
]


@pytest.mark.parametrize(("type", "params"), REMOVED, ids=lambda each: str(each))
def test_an_operator_that_changes_nothing_goes(type: str, params: dict[str, Any]) -> None:
    made = applied(identity_removal, around(type, **params))
    assert names(made) == ["before", "after"]


@pytest.mark.parametrize(("type", "params"), KEPT, ids=lambda each: str(each))
def test_an_operator_that_may_change_something_stays(type: str, params: dict[str, Any]) -> None:
    assert_untouched(identity_removal, around(type, **params))


def test_multiplying_integers_by_a_float_stays_as_it_makes_floats() -> None:
    assert_untouched(identity_removal, around("pnnx.Expression", (2, 3), I64, expr="mul(@0,1.0)"))
    assert names(applied(identity_removal, around("pnnx.Expression", (2, 3), I64, expr="mul(@0,1)"))) == [
        "before",
        "after",
    ]


@pytest.mark.parametrize(
    ("type", "params"),
    [
        ("nn.Dropout", {}),
        ("Tensor.slice", {"dim": 0, "start": 0, "end": 2147483647, "step": 1}),
        ("Tensor.reshape", {"shape": (-1, 3)}),
        ("Tensor.expand", {"sizes": (-1, 3)}),
        ("torch.transpose", {"dim0": 0, "dim1": 0}),
    ],
    ids=str,
)
def test_dynamic_dimensions_hinder_nothing_that_holds_for_all_of_them(type: str, params: dict[str, Any]) -> None:
    assert names(applied(identity_removal, around(type, (None, 3), **params))) == ["before", "after"]


@pytest.mark.parametrize(
    ("type", "shape", "params"),
    [
        ("Tensor.slice", (None, 3), {"dim": 0, "start": 0, "end": 2, "step": 1}),
        ("Tensor.slice", (None, 3), {"dim": 0, "start": 0, "end": -1, "step": 1}),
        ("Tensor.reshape", (None, None), {"shape": (-1, 2)}),
        ("Tensor.expand", (None, 3), {"sizes": (2, 3)}),
        ("nn.Upsample", (2, 3, None, None), {"size": (4, 4), "mode": "nearest"}),
        ("Tensor.permute", (None, None), {"dims": (1, 0)}),
    ],
    ids=str,
)
def test_dynamic_dimensions_are_not_taken_for_equal(
    type: str, shape: tuple[int | None, ...], params: dict[str, Any]
) -> None:
    assert_untouched(identity_removal, around(type, shape, **params))


def test_moving_axes_of_size_one_back_to_the_same_shape_moves_nothing() -> None:
    assert names(applied(identity_removal, around("torch.transpose", (1, 1, 5), dim0=0, dim1=1))) == ["before", "after"]
    assert_untouched(identity_removal, around("torch.transpose", (1, 5, 1), dim0=0, dim1=1))


def test_a_chain_goes_as_a_whole_and_the_output_keeps_its_operand() -> None:
    graph = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("nn.Dropout", "drop", "1", "2"),
        op("nn.Identity", "same", "2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(2, 3),
        _1=(2, 3),
        _3=(2, 3),
    )
    made = applied(identity_removal, graph)
    assert names(made) == ["relu"]
    assert made.outputs[0].operand == "3"
    assert made.source.annotations == {"0": TensorSpec((2, 3), F32), "3": TensorSpec((2, 3), F32)}


def test_an_input_returned_as_it_is_keeps_its_name() -> None:
    graph = built(INPUT, op("nn.Dropout", "drop", "0", "1"), op("pnnx.Output", "out", "1"), _0=(2, 3))
    made = applied(identity_removal, graph)
    assert names(made) == []
    assert made.outputs[0].operand == made.inputs[0].operand == "0"


def test_two_outputs_may_become_one_operand() -> None:
    graph = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("nn.Identity", "a", "1", "2"),
        op("nn.Identity", "b", "1", "3"),
        op("pnnx.Output", "out0", "2"),
        op("pnnx.Output", "out1", "3"),
        _0=(2, 3),
    )
    assert names(applied(identity_removal, graph)) == ["relu"]


def test_a_stack_of_one_becomes_an_unsqueeze() -> None:
    made = applied(identity_removal, around("torch.stack", (2, 3), dim=-1))
    assert types(made) == ["nn.ReLU", "torch.unsqueeze", "nn.ReLU"]


def test_a_tuple_that_is_unpacked_again_hands_its_items_on() -> None:
    graph = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("prim::TupleConstruct", "pack", "0 1", "2"),
        op("prim::TupleUnpack", "unpack", "2", "3 4"),
        op("pnnx.Expression", "sum", "3 4", "5", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "5"),
        _0=(2, 3),
    )
    assert names(applied(identity_removal, graph)) == ["relu", "pack", "sum"]


def test_tensors_of_a_list_are_joined_one_by_one() -> None:
    graph = built(
        INPUT,
        op("prim::Constant", "dim", "", "d", value=1),
        op("prim::ListConstruct", "pack", "0 0 0", "1"),
        op("torch.cat", "join", "1 d", "2", labels=("tensors", "dim")),
        op("pnnx.Output", "out", "2"),
        _0=(2, 3),
    )
    made = applied(identity_removal, graph)
    assert made.operators[-2].source.inputs == ("0", "0", "0", "d")
    assert made.operators[-2].source.labels == (None, None, None, "dim")


def test_pieces_of_a_list_come_from_the_operator_that_cuts_them() -> None:
    graph = built(
        INPUT,
        op("torch.chunk", "cut", "0", "1", chunks=2, dim=1),
        op("prim::ListUnpack", "unpack", "1", "2 3"),
        op("torch.sub", "difference", "2 3", "4"),
        op("pnnx.Output", "out", "4"),
        _0=(2, 4),
        _2=(2, 2),
    )
    made = applied(identity_removal, graph)
    assert names(made) == ["cut", "difference"]
    assert made.source.operators[1].outputs == ("2", "3")


@pytest.mark.parametrize("user", ["one piece", "the list too"])
def test_a_list_that_stays_a_list_is_unpacked(user: str) -> None:
    graph = built(
        INPUT,
        op("torch.chunk", "cut", "0", "1", chunks=1 if user == "one piece" else 2, dim=1),
        op("prim::ListUnpack", "unpack", "1", "2" if user == "one piece" else "2 3"),
        op("pnnx.Output", "out", "2"),
        *([op("pnnx.Output", "out_1", "1")] if user == "the list too" else []),
        _0=(2, 4),
        _2=(2, 4) if user == "one piece" else (2, 2),
    )
    assert_untouched(identity_removal, graph)


def test_a_shape_that_only_the_file_claims_proves_nothing() -> None:
    graph = built(
        INPUT,
        op("aten::where", "where", "0", "1"),
        op("prim::ListUnpack", "unpack", "1", "2 3"),
        op("Tensor.reshape", "it", "2", "4", shape=(2,)),
        op("pnnx.Output", "out", "4"),
        _0=(2, 3),
        _2=TensorSpec((2,), I64),
        _3=TensorSpec((2,), I64),
    )
    assert_untouched(identity_removal, graph)


def test_an_operand_a_layer_asks_the_file_about_is_not_exchanged_for_one_the_file_calls_otherwise() -> None:
    graph = built(
        INPUT,
        op("nn.Identity", "same", "0", "1"),
        op("F.softmax", "softmax", "1", "2", dim=1),
        op("pnnx.Output", "out", "2"),
        _0=(2, 3),
        _1=TensorSpec((2, 3), np.dtype(np.float64)),
        _2=TensorSpec((2, 3), np.dtype(np.float64)),
    )
    assert_untouched(identity_removal, graph)


@pytest.mark.parametrize("layer", sorted(RULES, key=repr), ids=lambda layer: layer.__name__)
def test_every_rule_says_something_where_only_a_run_tells_the_shapes(layer: type) -> None:
    """Whatever the rule: it is given what is known of both sides, which may be nothing."""
    graph = around("nn.Dropout", p=0.3)
    (it,) = [each for each in graph.operators if each.name == "it"]
    found = [RULES[layer](it, it.definition, *sides) for sides in ((None, None), (None, SPEC))]
    assert found == [layer in (Dropout, Identity, RawIdentity), False]
