"""Reductions of no elements: ONNX names a value where PyTorch has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.combining import together
from tests.engine.onnx_files.models import expected, model, node, save, value

EXTREMES = ("ReduceMax", "ReduceMin")
OTHERS = (
    *("ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)
DTYPES = {1: np.float32, 11: np.float64, 10: np.float16, 7: np.int64, 6: np.int32, 3: np.int8, 2: np.uint8, 9: np.bool_}


@together(
    ("type,dtype", [*((type, dtype) for type in EXTREMES for dtype in DTYPES), *((type, 1) for type in OTHERS)]),
    (
        "shape,axes",
        [((0, 2), [0]), ((2, 0, 3), [1, 2]), ((2, 0), None), ((0,), []), ((3, 0), [0]), ((1, 2, 0, 3), [2])],
    ),
    ("declared", ["fixed", "open", "unknown"]),
    ("backend", ["reference", "auto"]),
)
def test_a_reduction_of_nothing_is_what_the_specification_names(
    type: str, dtype: int, shape: Any, axes: Any, declared: str, backend: Any, tmp_path: Path
) -> None:
    size = {"fixed": shape, "open": [f"d{k}" for k in range(len(shape))], "unknown": None}[declared]
    inputs, weights = (["x"], {}) if axes is None else (["x", "axes"], {"axes": np.array(axes, np.int64)})
    made = model([node(type, inputs, ["y"])], [value("x", size, dtype)], [value("y", None, dtype)], weights)
    feeds = {"x": np.zeros(shape, DTYPES[dtype])}
    with np.errstate(all="ignore"):
        (wanted,) = expected(made, feeds)
    (found,) = engine.Session(engine.load(save(tmp_path, made)), backend=backend, cache=None).run(feeds)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axes", [None, [0]])
def test_an_extreme_of_elements_that_a_run_finds_may_be_of_none(axes: Any, tmp_path: Path) -> None:
    nodes = [node("NonZero", ["x"], ["i"]), node("Transpose", ["i"], ["t"]), node("ReduceMax", ["t"], ["y"], axes=axes)]
    made = model(nodes, [value("x", [3])], [value("y", None, 7)], opset=13)
    session = engine.Session(engine.load(save(tmp_path, made)), backend="reference")
    for x in ([0, 0, 0], [0, 1, 1]):
        (y,) = session.run([np.array(x, np.float32)])
        assert y.reshape(-1).tolist() == ([2] if any(x) else [np.iinfo(np.int64).min])


@pytest.mark.parametrize("shape", [(1, 1, 8), (2, 1, 8), (2, 4, 8)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("type", ["ReduceMax", "ReduceSum"])
def test_reversed_rows_are_reduced(tmp_path: Path, shape: tuple[int, ...], axis: int, type: str) -> None:
    nodes = [
        node("Slice", ["x", "start", "end", "last", "back"], ["reversed"]),
        node(type, ["reversed"], ["y"], axes=[axis], keepdims=0),
    ]
    weights = {"start": [99], "end": [-99], "last": [2], "back": [-1]}
    stored = {name: np.array(each) for name, each in weights.items()}
    proto = model(nodes, [value("x", list(shape))], [value("y", None)], stored, opset=11)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = engine.Session(engine.load(save(tmp_path, proto)), "compiled", 1, cache=None).run({"x": x})[0]
    reduce = np.max if type == "ReduceMax" else np.sum
    np.testing.assert_allclose(found, reduce(x[..., ::-1], axis=axis), rtol=1e-6)
