"""An ONNX file gives the same answers whatever it says of its inputs: sizes, no rank, values.

The answers are those of ONNX's own backend tests: a few of the stored ones here, all of them in `make nightly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from docs.generate_onnx_conformance import FOLDERS, REASONS, Case, cases, fault, stored_cases
from tests.engine.onnx_files.models import expected, model, node, onnx, save, value
from tests.nightly import IS_NIGHTLY

# Operators that take what a file says of sizes: without it they are refused.
NEED_SIZES = ("CausalConvWithState", "FlexAttention", "LSTM")
NEED_RANKS = (*NEED_SIZES, "ConvTranspose", "Softmax", "LogSoftmax", "PRelu")


def taken() -> Iterator[Case]:
    if IS_NIGHTLY:
        yield from (case for case in cases() if case.operator not in REASONS and not case.is_training)
        return
    for folder in FOLDERS:
        yield from list(stored_cases(folder))[::6]


def with_dynamic_sizes(case: Case) -> Case:
    """Each dimension of each input under a name of its own."""

    def name_sizes(port: Any) -> None:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            dim.dim_param = f"{port.name}_{axis}"

    return changed(case, name_sizes)


def without_ranks(case: Case) -> Case:
    return changed(case, lambda port: port.type.tensor_type.ClearField("shape"))


def changed(case: Case, change: Callable[[Any], None]) -> Case:
    """A case of which the inputs are declared otherwise, and nothing else is."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    for port in proto.graph.input:
        if port.type.HasField("tensor_type") and port.type.tensor_type.HasField("shape"):
            change(port)
    for port in proto.graph.output:
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    return replace(case, model=proto)


def with_constants(case: Case, first: int = 0) -> Case:
    """A case whose inputs from one on are stored in the file."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    (inputs, outputs), ports = case.data[0], list(proto.graph.input)
    values = [onnx.numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each for each in inputs]
    kept = [k for k, each in enumerate(values) if k < first or not isinstance(each, (np.ndarray, np.generic))]
    del proto.graph.input[:]
    for k, (port, each) in enumerate(zip(ports, values, strict=False)):
        if k in kept:
            proto.graph.input.add().CopyFrom(port)
        else:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(each), port.name))
    return replace(case, model=proto, data=[([values[k] for k in kept], outputs)])


WAYS: dict[str, tuple[Callable[[Case], Case], tuple[str, ...]]] = {
    "dynamic sizes": (with_dynamic_sizes, NEED_SIZES),
    "no ranks": (without_ranks, NEED_RANKS),
    "constants": (with_constants, ()),
    "constants but the first": (lambda case: with_constants(case, 1), ()),
    "dynamic sizes, constants but the first": (lambda case: with_dynamic_sizes(with_constants(case, 1)), NEED_SIZES),
}


def test_answers_are_the_same_whatever_is_known_before_a_run(tmp_path: Path) -> None:
    wrong, count = {}, 0
    for case in taken():
        operators = {each.op_type for each in case.model.graph.node}
        for name, (way, refusing) in WAYS.items():
            count += 1
            problem = fault(way(case), tmp_path)
            is_refused = problem is not None and ": " in problem  # an error says where; a difference does not
            if problem is not None and not (is_refused and not operators.isdisjoint(refusing)):
                wrong[f"{case.name}, {name}"] = problem
    assert count > 100
    assert not wrong


@pytest.mark.parametrize("type", ["Div", "Mod", "Max", "Cast", "Pow"])
def test_the_dtype_of_an_input_without_a_rank_decides(type: str, tmp_path: Path) -> None:
    """Check truncated integer division, casts to float64, and dtypes that PyTorch lacks."""
    second = [] if type == "Cast" else ["b"]
    target = {"to": 11} if type == "Cast" else {}
    for number, kind in ((1, np.float32), (6, np.int32), (7, np.int64), (12, np.uint32), (4, np.uint16)):
        if type == "Mod" and number == 1 or type == "Pow" and number in (4, 12):
            continue
        ports = [value(name, None, number) for name in ["a", *second]]
        result = 11 if type == "Cast" else number
        made = model([node(type, ["a", *second], ["y"], **target)], ports, [value("y", None, result)])
        feeds = {name: np.array(each, kind) for name, each in zip(["a", *second], ([7, 9], [2, 4]), strict=False)}
        (found,) = engine.Session(engine.load(save(tmp_path, made)), backend="reference").run(feeds)
        (wanted,) = expected(made, feeds)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted)


def test_a_split_takes_a_list_of_lengths_of_any_number(tmp_path: Path) -> None:
    split = node("Split", ["x", "parts"], ["a", "b"], axis=0)
    made = model([split], [value("x", ["n"]), value("parts", ["k"], 7)], [value("a", None), value("b", None)])
    session = engine.Session(engine.load(save(tmp_path, made)), backend="reference")
    a, b = session.run([np.arange(5, dtype=np.float32), np.array([2, 3])])
    assert (a.tolist(), b.tolist()) == ([0, 1], [2, 3, 4])
    with pytest.raises(engine.EngineError, match=r"found \[3\] into \[2\]"):
        session.run([np.arange(5, dtype=np.float32), np.array([2, 2, 1])])
