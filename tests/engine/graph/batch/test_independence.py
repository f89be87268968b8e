"""Proofs from graphs that items are independent, and the operators named where items are mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Layer, RuntimeGraph, Session, load, register, registry
from engine.graph.batch.independence import Proof, prove
from engine.pnnx import Operator
from engine.tensor import TensorSpec
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.onnx_files.models import FLOAT, INT64, model, node, onnx, save, value

RANDOM = np.random.default_rng(0)


def chain(*operators: Operator, shape: tuple[int | None, ...] = (None, 4, 6)) -> RuntimeGraph:
    return built(INPUT, *operators, op("pnnx.Output", "out", operators[-1].outputs[0]), _0=shape)


def proof_of(graph: RuntimeGraph, size: int = 8) -> Proof:
    """The proof for a dynamic first dimension, other open ones of a size."""
    specs = [port.spec for port in graph.inputs]
    closed = [
        TensorSpec(tuple(size if dim is None else dim for dim in spec.shape), spec.dtype) for spec in specs if spec
    ]
    return prove(graph, closed, (0,) * len(closed))


def onnx_graph(
    folder: Path, nodes: list[Any], weights: dict[str, Any], ids: bool = False, **given: Any
) -> RuntimeGraph:
    """A graph of x [batch, 4, 6], and of ids [batch, 4] where they are asked for, to y."""
    inputs = [value("x", ["batch", 4, 6])] + ([value("ids", ["batch", 4], INT64)] if ids else [])
    return load(save(folder, model(nodes, inputs, [value("y", None)], weights, **given)))


def slices(start: int, end: int, step: int = 1) -> Operator:
    return op("Tensor.slice", "mix", "0", "1", dim=0, start=start, end=end, step=step, labels=("input",))


def expression(inputs: str, text: str) -> Operator:
    return op("pnnx.Expression", "mix", inputs, "1", expr=text)


MIXING: dict[str, list[Operator]] = {
    "largest of all": [op("torch.amax", "mix", "0", "m", dim=(0,), keepdim=True), op("torch.div", "d", "0 m", "1")],
    "sum of all times nothing": [
        op("torch.sum", "mix", "0", "s"),
        op("pnnx.Expression", "e", "0 s", "1", expr="add(@0,mul(@1,0))"),
    ],
    "centred": [
        op("torch.mean", "mix", "0", "m", dim=(0,), keepdim=True),
        op("pnnx.Expression", "e", "0 m", "1", expr="sub(@0,@1)"),
    ],
    "reversed": [op("torch.flip", "mix", "0", "1", dims=(0,))],
    "rolled": [op("torch.roll", "mix", "0", "1", shifts=(1,), dims=(0,))],
    "rolled by every number that is tried": [op("torch.roll", "mix", "0", "1", shifts=(77,), dims=(0,))],
    "rolled as one row": [op("torch.roll", "mix", "0", "1", shifts=(1,))],
    "item 0 for all": [
        op("Tensor.select", "mix", "0", "s", dim=0, index=0, labels=("input",)),
        op("torch.add", "a", "0 s", "1"),
    ],
    "all but the last": [slices(0, -1)],
    "the first thousand": [slices(0, 1000)],
    "every second": [slices(0, 2147483647, 2)],
    "products of items": [
        op("torch.flatten", "f", "0", "f", start_dim=1, end_dim=-1),
        op("torch.t", "t", "f", "t"),
        op("torch.mm", "mix", "f t", "1"),
    ],
    "summed up": [op("torch.cumsum", "mix", "0", "1", dim=0)],
    "sorted": [op("torch.sort", "mix", "0", "1 places", dim=0, descending=False)],
    "softmax": [op("F.softmax", "mix", "0", "1", dim=0, labels=("input",))],
    "normalised by the batch": [
        op("F.batch_norm", "mix", "0", "1", labels=("input",), running_mean=None, running_var=None)
    ],
    "interleaved": [op("Tensor.reshape", "mix", "0", "1", shape=(4, -1, 6))],
    "rows of several items": [op("Tensor.reshape", "mix", "0", "1", shape=(-1, 5))],
    "turned and summed": [
        op("torch.transpose", "t", "0", "t", dim0=0, dim1=2),
        op("torch.sum", "mix", "t", "1", dim=(2,), keepdim=True),
    ],
    "joined with itself": [op("torch.cat", "mix", "0 0", "1", dim=0)],
    "two batches crossed": [
        op("torch.unsqueeze", "u", "0", "u", dim=0),
        op("torch.unsqueeze", "v", "0", "v", dim=1),
        op("torch.add", "mix", "u v", "1"),
    ],
    "divided by their number": [expression("0", "div(@0,size(@0,0))")],
    "one number of items treated otherwise": [
        op("Tensor.size", "n", "0", "n", dim=0),
        expression("0 n", "mul(@0,remainder(@1,5))"),
    ],
    "their place added": [
        op("Tensor.size", "n", "0", "n", dim=0),
        op("torch.arange", "range", "n", "r", labels=("end",)),
        op("Tensor.reshape", "shaped", "r", "s", shape=(-1, 1, 1)),
        op("torch.add", "mix", "0 s", "1"),
    ],
    "rolled by their number": [
        op("Tensor.size", "n", "0", "n", dim=0),
        op("torch.roll", "mix", "0 n", "1", dims=(1,), labels=("input", "shifts")),
    ],
    "cut at their number": [
        op("Tensor.size", "n", "0", "n", dim=0),
        op("pnnx.Expression", "e", "n", "e", expr="add(@0,2)"),
        op("Tensor.slice", "mix", "0 n e", "1", dim=2, step=1, labels=("input", "start", "end")),
    ],
    "stacked with their places": [
        op("Tensor.size", "n", "0", "n", dim=0),
        op("torch.arange", "range", "n", "r", labels=("end",)),
        op("torch.sum", "sum", "0", "s", dim=(1, 2)),
        op("torch.stack", "mix", "s r", "1", dim=1),
    ],
    "squeezed": [
        op("torch.sum", "s", "0", "s", dim=(1, 2), keepdim=True),
        op("torch.squeeze", "mix", "s", "1"),
    ],
    "an item repeated among others": [op("Tensor.repeat", "mix", "0", "1", sizes=(2, 1, 1))],
    "a window over items": [
        op(
            "nn.MaxPool1d",
            "mix",
            "0",
            "1",
            kernel_size=(3,),
            stride=(1,),
            padding=(1,),
            dilation=(1,),
            ceil_mode=False,
            return_indices=False,
        ),
    ],
    "drawn": [op("torch.randn_like", "mix", "0", "1")],
    "strides": [op("torch.as_strided", "mix", "0", "1", size=(2, 2), stride=(1, 1))],
}


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_items_is_named(name: str) -> None:
    shape: tuple[int | None, ...] = (None, 6) if name == "a window over items" else (None, 4, 6)
    reason = proof_of(chain(*MIXING[name], shape=shape)).reason
    assert reason is not None
    assert "mix (" in reason or name in ("rows of several items",)


KEEPING: dict[str, list[Operator]] = {
    "time first and back": [
        op("torch.transpose", "t", "0", "t", dim0=0, dim1=1),
        op("Tensor.reshape", "r", "t", "r", shape=(-1, 6)),
        op("nn.ReLU", "f", "r", "f"),
        op("Tensor.size", "n", "0", "n", dim=0),
        op("pnnx.Expression", "s", "n", "s", expr="[4,@0,6]"),
        op("Tensor.reshape", "b", "f s", "b", labels=("input", "shape")),
        op("torch.transpose", "u", "b", "1", dim0=0, dim1=1),
    ],
    "sizes computed and undone": [
        op("Tensor.size", "n", "0", "n", dim=0),
        op("pnnx.Expression", "s", "n", "s", expr="[floor_divide(mul(@0,24),24),24]"),
        op("Tensor.reshape", "r", "0 s", "1", labels=("input", "shape")),
    ],
    "the whole of it": [slices(0, 9223372036854775807)],
    "sorted by rows": [op("torch.sort", "mix", "0", "1 places", dim=2, descending=True)],
    "rolled within": [op("torch.roll", "mix", "0", "1", shifts=(1, 2), dims=(1, 2))],
    "a constant for every item": [
        op("Tensor.size", "n", "0", "n", dim=0),
        op("pnnx.Attribute", "c", "", "c", data=np.ones((1, 4, 6), F32)),
        op("pnnx.Expression", "s", "n", "s", expr="[@0,-1,-1]"),
        op("Tensor.expand", "e", "c s", "e", labels=("input", "sizes")),
        op("torch.add", "a", "0 e", "1"),
    ],
}


@pytest.mark.parametrize("name", KEEPING)
def test_what_keeps_items_apart_is_proved(name: str) -> None:
    proof = proof_of(chain(*KEEPING[name]))
    assert proof.reason is None and proof.outputs[0] == 0 and proof.is_plain


ONNX_MIXING: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "pixels of bytes or of one": (
        [
            node("ReduceMax", ["x"], ["m"], name="mix", keepdims=0),
            node("Greater", ["m", "k"], ["big"]),
            node("Where", ["big", "d", "one"], ["f"]),
            node("Div", ["x", "f"], ["y"]),
        ],
        {"k": np.array(1.5, F32), "d": np.array(255, F32), "one": np.array(1, F32)},
    ),
    "a scale of at least a hundred": (
        [
            node("ReduceMax", ["x"], ["m"], name="mix", keepdims=0),
            node("Max", ["m", "k"], ["d"]),
            node("Div", ["x", "d"], ["y"]),
        ],
        {"k": np.array(100, F32)},
    ),
    "NaN of another": (
        [
            node("ReduceSum", ["x"], ["m"], name="mix", keepdims=0),
            node("Mul", ["m", "zero"], ["z"]),
            node("Add", ["x", "z"], ["y"]),
        ],
        {"zero": np.array(0, F32)},
    ),
    "quantised by the largest of all": (
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="mix"),
            node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        {},
    ),
    "constant places": ([node("Gather", ["x", "i"], ["y"], name="mix", axis=0)], {"i": np.array([0, 0])}),
    "normalised over the batch": ([node("MeanVarianceNormalization", ["x"], ["y"], name="mix", axes=[0, 2])], {}),
    "places in the whole": (
        [node("MaxPool", ["x"], ["p", "i"], name="mix", kernel_shape=[2]), node("Cast", ["i"], ["y"], to=FLOAT)],
        {},
    ),
    "resized by a little": (
        [node("Resize", ["x", "", "s"], ["y"], name="mix", mode="nearest")],
        {"s": np.array([1.0001, 2, 2], F32)},
    ),
    "where they are not zero": ([node("NonZero", ["x"], ["y"], name="mix")], {}),
    "padded and cut": ([node("Pad", ["x", "p"], ["y"], name="mix")], {"p": np.array([1, 0, 0, -1, 0, 0])}),
    "their number compared": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Equal", ["n", "five"], ["is"], name="mix"),
            node("Where", ["is", "a", "b"], ["f"]),
            node("Mul", ["x", "f"], ["y"]),
        ],
        {"zero": np.array(0), "five": np.array(5), "a": np.array(1, F32), "b": np.array(2, F32)},
    ),
}


_COUNTED = [
    node("Shape", ["x"], ["s"]),
    node("Gather", ["s", "zero"], ["n"]),
    node("Cast", ["n"], ["f"], to=1),
]
_NUMBERED = [
    *_COUNTED,
    node("Gather", ["s", "first"], ["scalar"]),
    node("Range", ["first", "scalar", "step"], ["r"]),
    node("Unsqueeze", ["r", "one"], ["column"]),
    node("Concat", ["n", "one"], ["column_shape"], axis=0),
    node("ConstantOfShape", ["column_shape"], ["zeros"], value=onnx.helper.make_tensor("v", INT64, [1], [0])),
    node("Concat", ["column", "zeros"], ["places"], axis=-1),
]
_NUMBERS: dict[str, Any] = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "odd": np.array([11]),
    "half": np.array([0.5], F32),
    "first": np.array(0),
    "step": np.array(1),
    "turned": np.array([1, 0]),
    "same": np.array([1, 1], F32),
    "each": np.array([1, 2]),
}
# Each was once called proved: the answer of an item depends on how many items there are, or is another item's.
COUNTING: dict[str, list[Any]] = {
    "a share of the number": [*_COUNTED, node("Mul", ["f", "half"], ["h"]), node("Mul", ["x", "h"], ["y"])],
    "its negative": [*_COUNTED, node("Neg", ["f"], ["h"]), node("Add", ["x", "h"], ["y"])],
    "more than some": [
        *_COUNTED,
        *(node("Sub", ["n", "odd"], ["d"]), node("Cast", ["d"], ["e"], to=1)),
        *(node("Relu", ["e"], ["h"]), node("Add", ["x", "h"], ["y"])),
    ],
    "whether it is odd": [
        *_COUNTED,
        *(node("Mul", ["f", "half"], ["h"]), node("Cast", ["h"], ["i"], to=7), node("Mul", ["i", "two"], ["e"])),
        *(node("Sub", ["n", "e"], ["d"]), node("Cast", ["d"], ["df"], to=1), node("Add", ["x", "df"], ["y"])),
    ],
    "what 8 bits hold of it": [
        *_COUNTED,
        *(node("Cast", ["n"], ["b"], to=3), node("Cast", ["b"], ["i"], to=7), node("Sub", ["n", "i"], ["d"])),
        *(node("Cast", ["d"], ["df"], to=1), node("Add", ["x", "df"], ["y"])),
    ],
    "whether a number of an item is zero": [
        *_NUMBERED,
        *(node("Cast", ["r"], ["b"], to=9), node("Cast", ["b"], ["i"], to=7), node("Gather", ["x", "i"], ["y"])),
    ],
    "places in another order": [
        *_NUMBERED,
        *(node("Gather", ["places", "turned"], ["p"], axis=1), node("GatherND", ["x", "p"], ["y"])),
    ],
    "numbers that are looked up": [
        *_NUMBERED,
        *(node("GatherND", ["r", "column"], ["g"]), node("Cast", ["g"], ["gf"], to=1)),
        *(node("Unsqueeze", ["gf", "each"], ["wide"]), node("Add", ["x", "wide"], ["y"])),
    ],
    "numbers that are repeated": [
        *_NUMBERED,
        *(node("Concat", ["n", "two"], ["to"], axis=0), node("Expand", ["column", "to"], ["p"])),
        node("GatherND", ["x", "p"], ["y"]),
    ],
    "a scale near one": [
        *_COUNTED,
        *(node("Mul", ["f", "half"], ["h"]), node("Concat", ["same", "h"], ["scales"], axis=0)),
        node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
    ],
}


@pytest.mark.parametrize("name", COUNTING)
def test_what_depends_on_how_many_items_there_are_is_not_proved(name: str, tmp_path: Path) -> None:
    used = {each for part in COUNTING[name] for each in part.input}
    weights = {key: number for key, number in _NUMBERS.items() if key in used}
    assert proof_of(onnx_graph(tmp_path, COUNTING[name], weights)).reason is not None


def test_numbers_of_items_in_eight_bits_are_not_proved() -> None:
    counted = op("Tensor.size", "n", "0", "n", dim=0)
    numbers = op("torch.arange", "r", "n", "r", dtype="torch.int8", labels=("end",))
    wide = op("Tensor.to", "w", "r", "w", dtype="torch.long")
    places = op("prim::ListConstruct", "l", "w", "l")
    picked = op("Tensor.index", "mix", "0 l", "1")
    assert proof_of(chain(counted, numbers, wide, places, picked)).reason is not None


@pytest.mark.parametrize("name", ONNX_MIXING)
def test_what_mixes_items_in_onnx_files_is_named(name: str, tmp_path: Path) -> None:
    nodes, weights = ONNX_MIXING[name]
    reason = proof_of(onnx_graph(tmp_path, nodes, weights)).reason
    assert reason is not None and "mix (" in reason


ONNX_KEEPING: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "expand as exporters write it": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Unsqueeze", ["n", "zero"], ["n1"]),
            node("Concat", ["n1", "rest"], ["to"], axis=0),
            node("ConstantOfShape", ["three"], ["ones"]),
            node("Equal", ["to", "minus"], ["any"]),
            node("Where", ["any", "one3", "to"], ["sizes"]),
            node("Expand", ["token", "sizes"], ["t"]),
            node("Concat", ["t", "x"], ["y"], axis=1),
        ],
        {
            "zero": np.array(0),
            "rest": np.array([1, 6]),
            "three": np.array([3]),
            "minus": np.array([-1, -1, -1]),
            "one3": np.array([1, 1, 1]),
            "token": np.ones((1, 1, 6), F32),
        },
    ),
    "a place of its own": (
        [
            node("ArgMax", ["ids"], ["p"], axis=-1, keepdims=0),
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Range", ["zero", "n", "one"], ["r"]),
            node("Unsqueeze", ["r", "last"], ["r1"]),
            node("Unsqueeze", ["p", "last"], ["p1"]),
            node("Concat", ["r1", "p1"], ["places"], axis=-1),
            node("GatherND", ["x", "places"], ["y"]),
        ],
        {"zero": np.array(0), "one": np.array(1), "last": np.array([-1])},
    ),
    "resized": (
        [node("Resize", ["x", "", "s"], ["y"], mode="nearest")],
        {"s": np.array([1, 2, 2], F32)},
    ),
}


@pytest.mark.parametrize("name", ONNX_KEEPING)
def test_what_keeps_items_of_onnx_files_apart_is_proved(name: str, tmp_path: Path) -> None:
    nodes, weights = ONNX_KEEPING[name]
    graph = onnx_graph(tmp_path, nodes, weights, ids="ids" in str(nodes))
    assert proof_of(graph) == Proof(reason=None, outputs=(0,), is_plain=True)


@pytest.mark.parametrize("own", [True, False])
def test_a_place_of_each_item_is_told_from_a_place_in_the_first(own: bool, tmp_path: Path) -> None:
    """``x[arange(b), ids.argmax(-1)]``, as CLIP pools, with the batch counted or fixed at one."""
    nodes, weights = ONNX_KEEPING["a place of its own"]
    if not own:
        nodes = [each for each in nodes if each.op_type != "Range"]
        weights = {**weights, "r": np.array([0])}
        nodes = [*nodes[:3], node("Add", ["r0", "p"], ["r2"]), *nodes[3:]]
        nodes = [node("Mul", ["p", "zero"], ["r0"]), *nodes]
        nodes = [nodes[1], nodes[0], *nodes[2:]]
        for each in nodes:
            if each.op_type == "Unsqueeze" and each.input[0] == "r":
                each.input[0] = "r2"
    graph = onnx_graph(tmp_path, nodes, weights, ids=True)
    assert (proof_of(graph).reason is None) == own


def test_an_unproved_graph_of_an_open_batch_runs_it_as_it_was_sent() -> None:
    session = Session(chain(*MIXING["centred"]), backend="reference")
    x = RANDOM.standard_normal((3, 4, 6)).astype(F32)
    assert session.batching.mode == "any"
    assert (
        session.describe()["batch"]["reason"]
        == "items are not proved independent: mix (torch.mean) reduces the batch axis"
    )
    np.testing.assert_allclose(session.run([x])[0], x - x.mean(0), rtol=1e-5, atol=1e-6)


def test_sizes_are_those_that_are_asked_for() -> None:
    """Rows of 128 numbers are an item each for sequences of 32, and two items for those of 16."""
    graph = chain(
        op("Tensor.reshape", "mix", "0", "r", shape=(-1, 128)),
        op("F.softmax", "s", "r", "1", dim=1, labels=("input",)),
        shape=(None, None, 4),
    )
    assert proof_of(graph, 32).reason is None
    assert "mix (Tensor.reshape)" in str(proof_of(graph, 16).reason)


@pytest.mark.parametrize("label", [None, "attn_mask"])
def test_a_mask_that_is_of_steps_at_one_number_of_items_is_not_one_for_each_item(label: str | None) -> None:
    """A mask (n, S) with a label is the attention mask (L, S) if there are L items."""
    weights = {
        "in_proj_weight": np.ones((24, 8), F32),
        "in_proj_bias": np.ones(24, F32),
        "out_proj_weight": np.ones((8, 8), F32),
        "out_proj_bias": np.ones(8, F32),
    }
    attention = op("nn.MultiheadAttention", "mix", "0 m", "1", embed_dim=8, num_heads=2, batch_first=True,
                   labels=(None, label), **weights)  # fmt: skip
    graph = built(INPUT, op("pnnx.Input", "in_1", "", "m"), attention, op("pnnx.Output", "out", "1"),
                  _0=(None, None, 8), _m=(None, None))  # fmt: skip
    proof = prove(graph, [TensorSpec((1, 5, 8), F32), TensorSpec((1, 5), F32)], (0, 0))
    assert (proof.reason is None) == (label is None)


def test_outputs_that_are_the_same_for_every_batch_have_no_axis() -> None:
    table = op("pnnx.Attribute", "table", "", "t", data=np.ones((3, 2), F32))
    graph = built(
        INPUT,
        table,
        op("nn.ReLU", "relu", "0", "1"),
        op("pnnx.Output", "out", "1"),
        op("pnnx.Output", "same", "t"),
        _0=(None, 4),
    )
    assert proof_of(graph) == Proof(reason=None, outputs=(0, None), is_plain=True)


@pytest.mark.parametrize("axis", [0, None])
def test_a_layer_of_another_package_states_that_its_items_are_independent(axis: int | None) -> None:
    members = {"forward": lambda self, x: 2 * x, "infer": lambda self, x: x, "items_axis": axis, "__module__": __name__}
    with registry.extended():
        register("my.Twice")(type("Twice", (Layer,), members))
        proof = proof_of(chain(op("my.Twice", "mix", "0", "1")))
    assert (proof.reason is None) == (axis == 0)
    if axis is None:
        assert "mix (my.Twice) is of another package" in str(proof.reason)


def test_an_expression_may_be_as_deep_as_its_text() -> None:
    deep = "mul(" * 1500 + "@0" + ",1)" * 1500
    assert proof_of(chain(expression("0", deep))).reason is None
    sizes = [
        op("Tensor.size", "n", "0", "n", dim=0),
        op("pnnx.Expression", "s", "n", "s", expr=f"[{deep},24]"),
        op("Tensor.reshape", "mix", "0 s", "1", labels=("input", "shape")),
    ]
    assert proof_of(chain(*sizes)).reason is None
