"""ONNX operators as pnnx leaves them: what it has lost, and which of PyTorch's layers does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import ParameterError, ShapeError, UnsupportedOperatorError
from engine.layers import Annotations, bind, registry
from engine.layers.convolution.conv import Conv
from engine.layers.definition.layer import Layer
from engine.layers.pooling.pool import AvgPool
from engine.layers.reduction.reduction import Mean, Sum

F32 = np.dtype(np.float32)
Square, Sqrt = (engine.registry[f"torch.{name}"].layer for name in ("square", "sqrt"))


def graph(folder: Path, *lines: str) -> engine.RuntimeGraph:
    """A file of these lines, whose operands are counted."""
    operands = {word for line in lines for word in line.split()[4:] if word.isdecimal()}
    (folder / "model.pnnx.param").write_text("\n".join(["7767517", f"{len(lines)} {len(operands)}", *lines]) + "\n")
    (folder / "model.pnnx.bin").write_bytes(b"PK\x05\x06" + bytes(18))
    return engine.load(folder / "model.pnnx.param", folder / "model.pnnx.bin")


@pytest.mark.parametrize("type", ["Loop", "If", "Scan", "SequenceMap"])
def test_a_body_that_is_lost_is_refused_by_name(type: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperatorError, match=f"'{type}' .*pnnx does not write what an ONNX {type} repeats"):
        graph(tmp_path, "pnnx.Input in0 0 1 0", f"{type} op 1 1 0 1 body=None", "pnnx.Output out0 1 0 1")


def test_an_operator_of_another_domain_is_refused_with_what_pnnx_drops(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperatorError, match="pnnx drops attributes and weights of operators outside ONNX"):
        graph(tmp_path, "pnnx.Input in0 0 1 0", "custom_op.FusedMatMul op 1 1 0 1", "pnnx.Output out0 1 0 1")


@pytest.mark.parametrize("maker", ["pnnx.Expression c 0 1 1 expr=None", "prim::Constant c 0 1 1 value=None"])
def test_a_constant_that_is_lost_is_refused_when_the_file_is_loaded(maker: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"op \(QuantizeLinear\): the converter has lost a constant"):
        graph(
            tmp_path, "pnnx.Input in0 0 1 0 #0=(3)f32", maker, "pnnx.Expression s 0 1 2 expr=0.5",
            "QuantizeLinear op 3 1 0 2 1 3 #0=(3)f32 #3=(3)u8", "pnnx.Output out0 1 0 3",
        )  # fmt: skip


def test_a_lone_bound_of_clip_is_refused_for_the_file_does_not_say_which_it_is(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="whether a lone bound is min or max"):
        graph(
            tmp_path, "pnnx.Input in0 0 1 0 #0=(3)f32", "pnnx.Input in1 0 1 1 #1=(1)f32",
            "Clip op 2 1 0 1 2 #0=(3)f32 #1=(1)f32 #2=(3)f32", "pnnx.Output out0 1 0 2",
        )  # fmt: skip


OPERATORS: list[tuple[str, type[Layer]]] = [
    ("Conv op 2 1 0 1 2 pads=(1,1,1,1)", Conv),
    ("Conv op 2 1 0 1 2 auto_pad=SAME_UPPER", Conv),
    ("Conv op 2 1 0 1 2 pads=(1,1,2,1)", Conv),
    ("AveragePool op 1 1 0 2 kernel_shape=(2,2) count_include_pad=1", AvgPool),
]


def convolved(folder: Path, head: str) -> engine.RuntimeGraph:
    """A graph of an operator on an image and, if it takes one, a weight."""
    return graph(
        folder, "pnnx.Input in0 0 1 0 #0=(1,3,8,8)f32", "pnnx.Input in1 0 1 1 #1=(4,3,3,3)f32",
        f"{head} #0=(1,3,8,8)f32" + (" #1=(4,3,3,3)f32" if " 0 1 2" in head else ""), "pnnx.Output out0 1 0 2",
    )  # fmt: skip


@pytest.mark.parametrize(("head", "kind"), OPERATORS)
def test_pytorchs_own_layer_does_the_work_where_it_means_the_same(head: str, kind: type[Layer], tmp_path: Path) -> None:
    (op,) = (op for op in convolved(tmp_path, head).operators if op.layer is not None)
    assert op.layer is not None and type(op.layer.layer) is kind


@pytest.mark.parametrize("pads", ["(-1,0,0,0)", "(1,1)"])
def test_padding_that_does_not_fit_is_refused(pads: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="pads do not fit"):
        convolved(tmp_path, f"Conv op 2 1 0 1 2 pads={pads}")


@pytest.mark.parametrize(
    ("operator", "words", "kinds"),
    [("ReduceMean", "axes=(1,2)", [Mean]), ("ReduceSum", "", [Sum]), ("ReduceL2", "axes=1", [Square, Sum, Sqrt])],
)
def test_an_operator_without_a_layer_of_its_own_is_translated(
    operator: str, words: str, kinds: list[type[Layer]], tmp_path: Path
) -> None:
    made = graph(
        tmp_path, "pnnx.Input in0 0 1 0 #0=(2,3,4)f32", f"{operator} op 1 1 0 1 {words} #0=(2,3,4)f32",
        "pnnx.Output out0 1 0 1",
    )  # fmt: skip
    assert [type(op.layer.layer) for op in made.operators if op.layer is not None] == kinds
    assert engine.Session(made, backend="reference").run([np.ones((2, 3, 4), np.float32)])[0].ndim == 3
    made.save(tmp_path / "again.param", tmp_path / "again.bin")
    assert engine.load(tmp_path / "again.param", tmp_path / "again.bin").text() == made.text()


@pytest.mark.parametrize(
    ("index", "out", "expected"),
    [("(0,2)", "(2,3)", [[0, 1, 2], [6, 7, 8]]), ("1", "(1,3)", [[3, 4, 5]]), ("-1", "(3)", [6, 7, 8])],
)
def test_a_gather_that_pnnx_writes_as_a_select_gathers(
    index: str, out: str, expected: list[Any], tmp_path: Path
) -> None:
    made = graph(
        tmp_path, "pnnx.Input in0 0 1 0 #0=(3,3)f32",
        f"Tensor.select op 1 1 0 1 dim=0 index={index} $input=0 #0=(3,3)f32 #1={out}f32", "pnnx.Output out0 1 0 1",
    )  # fmt: skip
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(engine.Session(made, backend="reference").run([x])[0], expected)


@pytest.mark.parametrize(("note", "sizes", "expected"), [("i64", [1, 2, 6, 9], (6, 9)), ("f32", [1, 1, 2, 3], (6, 9))])
def test_a_resize_to_sizes_or_by_factors_of_all_axes(
    note: str, sizes: list[int], expected: tuple[int, int], tmp_path: Path
) -> None:
    made = graph(
        tmp_path, "pnnx.Input in0 0 1 0 #0=(1,2,3,3)f32", f"pnnx.Input in1 0 1 1 #1=(4){note}",
        f"F.interpolate op 2 1 0 1 2 mode=nearest $input=0 $size=1 #0=(1,2,3,3)f32 #1=(4){note}",
        "pnnx.Output out0 1 0 2",
    )  # fmt: skip
    dtype = np.int64 if note == "i64" else np.float32
    x = np.zeros((1, 2, 3, 3), np.float32)
    found = engine.Session(made, backend="reference").run([x, np.array(sizes, dtype)])[0]
    assert found.shape == (1, 2, *expected)


@pytest.mark.parametrize(("out", "shape"), [("(1,1)", (1, 1)), ("(2,3)", (2, 3))])
def test_a_maximum_keeps_what_the_file_says_of_its_result(out: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    made = graph(
        tmp_path, "pnnx.Input in0 0 1 0 #0=(2,3)f32", f"torch.max op 1 1 0 1 $input=0 #0=(2,3)f32 #1={out}f32",
        "pnnx.Output out0 1 0 1",
    )  # fmt: skip
    assert engine.Session(made, backend="reference").run([np.zeros((2, 3), np.float32)])[0].shape == shape


@pytest.mark.parametrize(("function", "expected"), [("mul", [8, 21, 24]), ("div", [0, 2, 0])])
def test_a_tensor_among_sizes_stands_for_its_shape(function: str, expected: list[int], tmp_path: Path) -> None:
    made = graph(
        tmp_path, "pnnx.Input in0 0 1 0 #0=(2,7,4)f32", "pnnx.Expression c 0 1 1 expr=[4,3,6]",
        f"pnnx.Expression op 2 1 0 1 2 expr={function}(@0,@1) #0=(2,7,4)f32 #2=(3)i64", "pnnx.Output out0 1 0 2",
    )  # fmt: skip
    found = engine.Session(made, backend="reference").run([np.zeros((2, 7, 4), np.float32)])[0]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int64


def test_a_power_of_integers_stays_one_where_the_file_announces_it(tmp_path: Path) -> None:
    made = graph(
        tmp_path, "pnnx.Input in0 0 1 0 #0=(3)i32", "pnnx.Input in1 0 1 1 #1=(3)f32",
        "pnnx.Expression op 2 1 0 1 2 expr=pow(@0,@1) #0=(3)i32 #1=(3)f32 #2=(3)i32", "pnnx.Output out0 1 0 2",
    )  # fmt: skip
    inputs = [np.array([1, 2, 3], np.int32), np.array([0.5, 0.5, 2], np.float32)]
    found = engine.Session(made, backend="reference").run(inputs)[0]
    np.testing.assert_array_equal(found, np.array([1, 1, 9], np.int32))
    assert found.dtype == np.int32


def test_every_draw_of_a_certain_bernoulli_is_its_probability(tmp_path: Path) -> None:
    made = graph(
        tmp_path, "pnnx.Input in0 0 1 0 #0=(4)f32", "Bernoulli op 1 1 0 1 #0=(4)f32 #1=(4)f32",
        "pnnx.Output out0 1 0 1",
    )  # fmt: skip
    chances = np.array([0, 1, 1, 0], np.float32)
    np.testing.assert_array_equal(engine.Session(made, backend="reference").run([chances])[0], chances)


@pytest.mark.parametrize("function", ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "bitwise_and", "maximum"])
@pytest.mark.parametrize("words", ["other=(0,2,1) $input=0", "input=(0,2,1) $other=0"])
def test_a_list_beside_a_tensor_is_a_vector(function: str, words: str, tmp_path: Path) -> None:
    made = graph(tmp_path, "pnnx.Input in0 0 1 0 #0=(2,3)i32", f"torch.{function} op 1 1 0 1 {words}",
                 "pnnx.Output out0 1 0 1")  # fmt: skip
    x, listed = np.array([[0, 1, 2], [2, 2, 0]], np.int32), np.array([0, 2, 1], np.int32)
    operands = (x, listed) if words.startswith("other") else (listed, x)
    names = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
    expected = getattr(np, names.get(function, function))(*operands)
    found = engine.Session(made, backend="reference").run([x])[0]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_a_slope_whose_axes_are_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"weight does not fit the channels: found \[4\]"):
        graph(
            tmp_path, "pnnx.Input in0 0 1 0 #0=(2,3,4,4)f32", "pnnx.Input in1 0 1 1 #1=(4)f32",
            "F.prelu op 2 1 0 1 2 $input=0 $weight=1 #0=(2,3,4,4)f32 #1=(4)f32", "pnnx.Output out0 1 0 2",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("head", "second", "found"),
    [
        ("LayerNormalization op 2 2 0 1", "(2,1)f32", "the mean or the input normalised, the inverse deviation"),
        ("Attention op 3 2 0 0 0", "(2,3,4,5)f32", "the keys or the attention, the values"),
    ],
)
def test_a_second_result_that_may_be_either_is_refused_by_name(
    head: str, second: str, found: str, tmp_path: Path
) -> None:
    shape = "(2,3)f32" if head.startswith("Layer") else "(2,3,4,5)f32"
    with pytest.raises(ParameterError, match=f"does not say which results the outputs are: .*{found}"):
        graph(
            tmp_path, f"pnnx.Input in0 0 1 0 #0={shape}", "pnnx.Input in1 0 1 1 #1=(3)f32",
            f"{head} 2 3 #2={shape} #3={second}", "pnnx.Output out0 1 0 2", "pnnx.Output out1 1 0 3",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("head", "shape"),
    [("GroupNormalization op 3 1 0 1 2 3 num_groups=2", "(1,4,2)bool"),
     ("LayerNormalization op 3 1 0 1 2 3", "(2,4)c64")],
)  # fmt: skip
def test_a_dtype_that_a_norm_is_not_defined_for_is_refused(head: str, shape: str, tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="has the wrong dtype"):
        graph(
            tmp_path, f"pnnx.Input in0 0 1 0 #0={shape}", "pnnx.Input in1 0 1 1 #1=(4)f32",
            "pnnx.Input in2 0 1 2 #2=(4)f32", f"{head} #0={shape} #1=(4)f32 #2=(4)f32", "pnnx.Output out0 1 0 3",
        )  # fmt: skip


@pytest.mark.parametrize("shape", ["(1,1,1)", "(4,5)"])
def test_a_slope_that_would_make_the_input_larger_is_refused(shape: str, tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"slope does not fit: found \[3, 4, 5\]"):
        graph(
            tmp_path, f"pnnx.Input in0 0 1 0 #0={shape}f32", "pnnx.Input in1 0 1 1 #1=(3,4,5)f32",
            f"PRelu op 2 1 0 1 2 #0={shape}f32 #1=(3,4,5)f32", "pnnx.Output out0 1 0 2",
        )  # fmt: skip


@pytest.mark.parametrize("count", [3, 0])
def test_scales_of_a_convolution_are_one_or_one_a_channel(count: int, tmp_path: Path) -> None:
    notes = ["(1,1,3,3)u8", "(1)f32", "(1)u8", "(2,1,1,1)u8", f"({count})f32", "(1)u8", "(1)f32", "(1)u8"]
    inputs = [f"pnnx.Input in{k} 0 1 {k} #{k}={note}" for k, note in enumerate(notes)]
    head = "QLinearConv op 8 1 0 1 2 3 4 5 6 7 8 " + " ".join(f"#{k}={note}" for k, note in enumerate(notes))
    with pytest.raises(ShapeError, match=rf"w_scale does not fit: found \[{count}\], expected \[2\]"):
        graph(tmp_path, *inputs, head, "pnnx.Output out0 1 0 8")


def test_bits_of_large_unsigned_numbers_are_all_kept() -> None:
    given = [np.array([2**64 - 9, 2**63 + 1], np.uint64), np.array([1, 1], np.uint64)]
    annotations = Annotations(inputs=(None, None), outputs=(None,), labels=(None, None))
    found = bind(
        registry["torch.bitwise_right_shift"], n_inputs=2, params={}, attributes={}, annotations=annotations
    ).forward(given)
    assert found.tolist() == [2**63 - 5, 2**62]
