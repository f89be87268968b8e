"""Operands that a file leaves out, and what an operator set has where a file says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import GraphError, ParameterError
from tests.engine.onnx_files.models import expected, model, node, onnx, save, value

F = np.float32
UINT8 = 2
R = np.random.default_rng(0)


def answers(proto: Any, feeds: Mapping[str, Any], folder: Path) -> list[Any]:
    """Return the equal results of the layers, the machine code and the saved pair."""
    path = save(folder, proto)
    graph = engine.load(path)
    graph.save(folder / "model.pnnx.param", folder / "model.pnnx.bin")
    pair = engine.load(folder / "model.pnnx.param", folder / "model.pnnx.bin")
    found = [
        engine.Session(each, backend=way).run(dict(feeds)) for each in (graph, pair) for way in ("reference", "auto")
    ]
    for each in found[1:]:
        for a, b in zip(each, found[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return list(found[0])


@pytest.mark.parametrize("following", ["", "Cast", "Add, Cast"])
@pytest.mark.parametrize("zeros", [["", "z"], ["", "", ""], ["z"], ["z", "z"]])
@pytest.mark.parametrize(
    ("type", "x", "w"), [("MatMulInteger", (3, 4), (4, 5)), ("ConvInteger", (1, 2, 5, 5), (3, 2, 3, 3))]
)
def test_zero_points_are_told_by_their_place(
    type: str, x: tuple[int, ...], w: tuple[int, ...], zeros: list[str], following: str, tmp_path: Path
) -> None:
    weights = {"w": R.integers(0, 256, w).astype(np.uint8), "z": np.array(7, np.uint8)}
    weights["b"] = R.integers(-99, 99, (3, 1, 1) if len(w) == 4 else (5,)).astype(np.int32)
    nodes = [node(type, ["x", "w", *zeros][:4], ["s"])]
    nodes += [node("Add", ["s", "b"], ["t"])] if "Add" in following else []
    nodes += [node("Cast" if following else "Identity", ["t" if "Add" in following else "s"], ["y"])]
    if following:
        nodes[-1].attribute.append(onnx.helper.make_attribute("to", 1))
    proto = model(nodes, [value("x", x, UINT8)], [value("y", None, 1 if following else 6)], weights, opset=14)
    feeds = {"x": R.integers(0, 256, x).astype(np.uint8)}
    np.testing.assert_array_equal(answers(proto, feeds, tmp_path)[0], expected(proto, feeds)[0])


@pytest.mark.parametrize("given", ["c", "hp", "p", "cp", "h"])
def test_states_and_peepholes_of_an_lstm_are_told_by_their_place(given: str, tmp_path: Path) -> None:
    weights = {"w": R.standard_normal((1, 16, 3), F), "r": R.standard_normal((1, 16, 4), F)}
    weights |= {
        "h": R.standard_normal((1, 2, 4), F),
        "c": R.standard_normal((1, 2, 4), F),
        "p": R.standard_normal((1, 12), F),
    }
    inputs = ["x", "w", "r", "", "", *(name if name in given else "" for name in "hcp")]
    proto = model(
        [node("LSTM", inputs, ["y", "", "last"], hidden_size=4)], [value("x", (5, 2, 3))],
        [value("y", None), value("last", None)], weights, opset=14,
    )  # fmt: skip
    feeds = {"x": R.standard_normal((5, 2, 3), F)}
    for mine, theirs in zip(answers(proto, feeds, tmp_path), expected(proto, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [16, 1, 2, 5])
def test_a_length_is_no_axis_where_sizes_are_open(length: int, tmp_path: Path) -> None:
    proto = model(
        [node("DFT", ["x", "n"], ["y"])],
        [value("x", ["n", 8, 1])],
        [value("y", None)],
        {"n": np.array(length)},
        opset=20,
    )
    x = R.standard_normal((2, 8, 1), F)
    wanted = np.fft.fft(x[..., 0], length, axis=1)
    found = answers(proto, {"x": x}, tmp_path)[0]
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (["x", "h", "h"], [0.5, 0.5, 0.5]),
        (["x", "h"], [0.5, 0.5, 1]),
        (["x", "", "h"], [-1, 0, 0.5]),
        (["x"], [-1, 0, 1]),
    ],
)
@pytest.mark.parametrize("name", ["Inner", "Outer", "Branch"])
def test_inputs_of_functions_are_left_out_inside_too(
    name: str, call: Sequence[str], wanted: list[float], tmp_path: Path
) -> None:
    proto = model(
        [node(name, call, ["y"], domain="mine")], [value("x", [3])], [value("y", None)], {"h": np.array(0.5, F)},
        opset=17, functions=functions(), domains=["mine"],
    )  # fmt: skip
    found = answers(proto, {"x": np.array([-1, 0, 1], F)}, tmp_path)[0]
    np.testing.assert_array_equal(found, np.array(wanted, F))


def functions() -> list[Any]:
    """Clip as a function, as one in another, and as one in a branch of another."""
    make, imports = onnx.helper.make_function, [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mine", 1)]
    true = node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True)))
    body = onnx.helper.make_graph([node("Clip", ["x", "a", "b"], ["z"])], "body", [], [value("z", None)])
    return [
        make("mine", "Inner", ["x", "low", "high"], ["y"], [node("Clip", ["x", "low", "high"], ["y"])], imports),
        make("mine", "Outer", ["x", "a", "b"], ["y"], [node("Inner", ["x", "a", "b"], ["y"], domain="mine")], imports),
        make("mine", "Branch", ["x", "a", "b"], ["y"],
             [true, node("If", ["c"], ["y"], then_branch=body, else_branch=body)], imports),
    ]  # fmt: skip


def test_more_inputs_than_a_function_has_are_refused(tmp_path: Path) -> None:
    proto = model([node("Inner", ["x", "x", "x", "x"], ["y"], domain="mine")], [value("x", [3])], [value("y", None)],
                  opset=17, functions=functions(), domains=["mine"])  # fmt: skip
    with pytest.raises(GraphError, match="too many inputs: found 4, expected at most 3"):
        engine.load(save(tmp_path, proto))


def test_an_attribute_that_the_operator_set_does_not_have_is_refused(tmp_path: Path) -> None:
    proto = model([node("Clip", ["x"], ["y"], max=1.0)], [value("x", [3])], [value("y", None)], opset=11)
    with pytest.raises(ParameterError, match="unknown attribute 'max', expected none"):
        engine.load(save(tmp_path, proto))


# By hand: the samples of the first version lie at 0.75 and 2.25, as those of output_half_pixel.
REGIONS = [[3.75, 5.25], [9.75, 11.25]]


@pytest.mark.parametrize(("opset", "wanted"), [(10, REGIONS), (13, REGIONS), (16, [[1.25, 2.75], [7.25, 8.75]])])
def test_regions_of_the_first_version_are_not_shifted(opset: int, wanted: list[list[float]], tmp_path: Path) -> None:
    weights = {"r": np.array([[0, 0, 3, 3]], F), "b": np.array([0])}
    call = node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2, sampling_ratio=1)
    proto = model([call], [value("x", [1, 1, 4, 4])], [value("y", None)], weights, opset=opset)
    found = answers(proto, {"x": np.arange(16, dtype=F).reshape(1, 1, 4, 4)}, tmp_path)[0]
    np.testing.assert_allclose(found[0, 0], wanted)


@pytest.mark.parametrize(
    ("mode", "scale", "wanted"),
    [
        ("linear", 2.0, [0, 5, 10, 15, 20, 25, 30, 30]), ("nearest", 1.6, [0, 0, 10, 10, 20, 30]),
        ("nearest", 0.6, [0, 20]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_stored", [True, False])
def test_the_first_resize_is_asymmetric(
    mode: str, scale: float, wanted: list[float], is_stored: bool, tmp_path: Path
) -> None:
    scales = np.array([1, 1, 1, scale], F)
    inputs = [value("x", [1, 1, 1, 4])] + ([] if is_stored else [value("s", [4])])
    proto = model([node("Resize", ["x", "s"], ["y"], mode=mode)], inputs, [value("y", None)],
                  {"s": scales} if is_stored else {}, opset=10)  # fmt: skip
    feeds = {"x": np.array([[[[0, 10, 20, 30]]]], F)} | ({} if is_stored else {"s": scales})
    np.testing.assert_allclose(answers(proto, feeds, tmp_path)[0].ravel(), wanted)


@pytest.mark.parametrize("is_stored", [True, False])
def test_places_between_elements_fall_as_single_precision_has_them(is_stored: bool, tmp_path: Path) -> None:
    # onnxruntime: (1 + 0.5) / float32(0.6) - 0.5 is 2 there, and less in double precision.
    scales = np.array([1, 1, 1, 0.6], F)
    inputs = [value("x", [1, 1, 1, 5])] + ([] if is_stored else [value("s", [4])])
    call = node("Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode="floor")
    proto = model([call], inputs, [value("y", None)], {"s": scales} if is_stored else {}, opset=13)
    feeds = {"x": np.arange(5, dtype=F).reshape(1, 1, 1, 5)} | ({} if is_stored else {"s": scales})
    np.testing.assert_array_equal(answers(proto, feeds, tmp_path)[0].ravel(), [0, 2, 3])


def test_borders_of_pooled_regions_round_away_from_zero(tmp_path: Path) -> None:
    # onnxruntime: half of 1 is 1, half of 5 is 3.
    weights = {"r": np.array([[0, 1, 1, 5, 5]], F)}
    call = node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[1, 1], spatial_scale=0.5)
    proto = model([call], [value("x", [1, 1, 5, 5])], [value("y", None)], weights, opset=13)
    x = np.arange(25, dtype=F)[::-1].reshape(1, 1, 5, 5)
    assert answers(proto, {"x": x}, tmp_path)[0].ravel().tolist() == [x[0, 0, 1, 1]]


@pytest.mark.parametrize("type", ["ConvInteger", "QLinearConv"])
def test_bytes_whose_padding_depends_on_sizes_run_on_the_layers(type: str, tmp_path: Path) -> None:
    weights = {
        "w": R.integers(0, 256, (3, 2, 3, 3)).astype(np.uint8),
        "s": np.array(0.1, F),
        "z": np.array(7, np.uint8),
    }
    operands = ["x", "w", "z"] if type == "ConvInteger" else ["x", "s", "z", "w", "s", "z", "s", "z"]
    ports = [value("x", (1, 2, 5, 5), UINT8)], [value("y", None, 6 if len(operands) == 3 else UINT8)]
    same = model([node(type, operands, ["y"], auto_pad="SAME_UPPER")], *ports, weights)
    padded = model([node(type, operands, ["y"], pads=[1, 1, 1, 1])], *ports, weights)
    feeds = {"x": R.integers(0, 256, (1, 2, 5, 5)).astype(np.uint8)}
    np.testing.assert_array_equal(answers(same, feeds, tmp_path)[0], expected(padded, feeds)[0])
