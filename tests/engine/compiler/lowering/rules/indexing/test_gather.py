"""Gathers, places of extremes and running sums: the reference's answers, and its refusals of indices outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import EngineError, Session, TensorSpec
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.indexing.gather import ElementGather, IndexOperand
from engine.compiler.kernels.ordering.scan import Scan
from engine.compiler.kernels.rows.argmax import ArgExtreme
from engine.pnnx import Operator
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(17)
SHAPES = [(1,), (3,), (17,), (2, 65), (3, 1, 5), (2, 3, 4, 17)]


def kernel_of(type_: str, inputs: list[np.ndarray], outputs: int = 1, **given: Any) -> str:
    """Return the kernel of an operator whose answers are the reference's."""
    names = " ".join(str(k) for k, _ in enumerate(inputs))
    it = op(type_, "it", names, " ".join(f"result_{k}" for k in range(outputs)), **given)
    return kernels_of([it], inputs)["it"]


def kernels_of(operators: list[Operator], *runs: list[np.ndarray]) -> dict[str, str]:
    """Return the kernels of a graph's operators; every run gives the reference's answers or its refusal.

    Operands 0, 1, ... are the inputs; each result is an output. A program for several operators, or runs, takes little
    longer to compile than one for each.
    """
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(runs[0])]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(runs[0])}
    ends = [op("pnnx.Output", f"out_{name}", name) for each in operators for name in each.outputs]
    net = built(*ports, *operators, *ends, **specs)
    session = Session(net, cache=None)
    has_answered = [_agree(session, Session(net, backend="reference"), inputs) for inputs in runs]
    if not all(has_answered):
        return dict.fromkeys((each.name for each in operators), "refused")
    rows = {row["name"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}
    return {each.name: "reference" if session.compile_failure else rows[each.name] for each in operators}


def _agree(session: Session, reference: Session, inputs: list[np.ndarray]) -> bool:
    """Hold a session's answers against the reference's; return whether there were any, rather than a refusal."""
    try:
        wanted = reference.run(inputs)
    except EngineError as refusal:
        with pytest.raises(EngineError) as raised:
            session.run(inputs)
        assert str(raised.value) == str(refusal)
        return False
    for mine, theirs in zip(session.run(inputs), wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    return True


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "int16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gathers_along_every_dimension(shape: tuple[int, ...], dtype: str) -> None:
    x = RANDOM.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    for dim in range(-1, len(shape)):
        sizes = [max(1, size - 1) for size in shape]
        sizes[dim] = 5
        index, picked = RANDOM.integers(0, shape[dim], sizes), RANDOM.integers(0, shape[dim], 7).astype(np.int32)
        both = [op("torch.gather", "a", "0 1", "3", dim=dim), op("torch.index_select", "b", "0 2", "4", dim=dim)]
        assert kernels_of(both, [x, index, picked]) == {"a": "gather", "b": "gather"}


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1, 2**62, -(2**63)])
def test_an_index_outside_is_refused_as_the_reference_does(wrong: int) -> None:
    x = RANDOM.standard_normal((2, 3, 65)).astype(np.float32)
    index = np.zeros((2, 3, 65), np.int64)
    index[1, 2, 64] = wrong
    assert kernel_of("torch.gather", [x, index], dim=1) == "refused"
    assert kernel_of("torch.index_select", [x, np.array([0, wrong])], dim=1) == "refused"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wrong", [-1, -4, 3, 2**31, -(2**62)])
@pytest.mark.parametrize("wraps", [False, True])
def test_nothing_outside_is_read_or_written(level: str, wrong: int, wraps: bool) -> None:
    for columns in (1, 3, 17, 65):
        source = guarded_array(RANDOM.standard_normal((3, columns)).astype(np.float32))
        target = guarded_array(np.zeros((4, columns), np.float32))
        index, fault_flag = np.array([2, wrong, 0, 1]), np.zeros(1, np.int32)
        at = IndexOperand(strides=(1, 0), bits=64, size=3, step=columns, wraps=wraps)
        kernel = ElementGather(
            sizes=(4, columns), target=(columns, 1), source=(0, 1), positions=(at,), element=4, host=describe(level)
        )
        run(kernel, level, [target, source, index, fault_flag])
        is_inside = wraps and wrong == -1
        assert fault_flag[0] == (0 if is_inside else 2)
        np.testing.assert_array_equal(target, source[[2, 2 if is_inside else 0, 0, 1]])


@pytest.mark.parametrize("expr", ["[[1,0,-1]]", "[None,[2,-3]]", "[[1,0],None,[3,3]]", "[[1,-1],[0,2]]"])
def test_indexing_with_constant_positions(expr: str) -> None:
    x = RANDOM.standard_normal((2, 3, 4, 17)).astype(np.float32)
    assert kernel_of("Tensor.index", [x], expr=expr) == "gather"


@pytest.mark.parametrize("type_", ["argmax", "argmin", "max", "min"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_places_of_extremes(type_: str, shape: tuple[int, ...]) -> None:
    results = "1" if type_.startswith("arg") else "1 2"
    kinds = (RANDOM.standard_normal(shape), RANDOM.integers(-2, 2, shape), np.zeros(shape))
    shares = (0, 0.1, 1)
    runs = [[np.where(RANDOM.random(shape) < each, np.nan, x).astype(np.float32)] for x in kinds for each in shares]
    for dim in range(-1, len(shape)):
        it = op(f"torch.{type_}", "it", "0", results, dim=dim, keepdim=dim == 0)
        assert kernels_of([it], *runs) == {"it": "extreme"}
    if results == "1":
        assert kernel_of(f"torch.{type_}", runs[-1], dim=None, keepdim=False) == "extreme"
    else:
        assert kernel_of(f"torch.{type_}", runs[-1]) != "reference"


@pytest.mark.parametrize("level", LEVELS)
def test_extremes_of_rows_of_every_length(level: str) -> None:
    for columns in (1, 2, 3, 15, 16, 17, 33, 65, 1000):
        x = RANDOM.integers(-3, 3, (7, columns)).astype(np.float32)
        x[3, columns // 2 :: 3], x[4] = np.nan, -np.inf
        source, elements = guarded_array(x), guarded_array(np.zeros(7, np.float32))
        places = np.zeros(7, np.int64)
        for is_largest in (True, False):
            kernel = ArgExtreme(rows=7, columns=columns, source=columns, is_largest=is_largest, host=describe(level))
            run(kernel, level, [source, places, elements])
            wanted = (np.argmax if is_largest else np.argmin)(x, 1)
            np.testing.assert_array_equal(places, wanted)
            np.testing.assert_array_equal(elements, x[np.arange(7), wanted])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64"])
def test_extremes_of_other_dtypes_touch_nothing_beside(dtype: str, level: str) -> None:
    for columns in (1, 17, 65):
        x = RANDOM.integers(0, 200, (3, columns)).astype(dtype)
        source, elements, places = (
            guarded_array(x, dtype=dtype),
            guarded_array(np.zeros(3), dtype=dtype),
            np.zeros(3, np.int64),
        )
        kernel = ArgExtreme(
            rows=3, columns=columns, source=columns, is_largest=True, dtype=dtype, host=describe(level)
        )  # fmt: skip
        run(kernel, level, [source, places, elements])
        np.testing.assert_array_equal(places, x.argmax(1))
        np.testing.assert_array_equal(elements, x.max(1))


@pytest.mark.parametrize("type_", ["cumsum", "cumprod"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_running_sums_and_products(type_: str, shape: tuple[int, ...]) -> None:
    x = (1 + RANDOM.standard_normal(shape) / 8).astype(np.float32)
    for dim in range(-1, len(shape)):
        assert kernel_of(f"torch.{type_}", [x], dim=dim) == "scan"


@pytest.mark.parametrize("level", LEVELS)
def test_scans_touch_nothing_beside(level: str) -> None:
    for outer, size, inner in [(1, 1, 1), (3, 5, 1), (2, 17, 3), (2, 3, 65), (1, 4, 16)]:
        x = guarded_array(RANDOM.standard_normal((outer, size, inner)).astype(np.float32))
        target = guarded_array(np.zeros_like(x))
        sizes, dtypes = {"outer": outer, "size": size, "inner": inner}, ("float32", "float32")
        run(Scan(mode="sum", **sizes, dtypes=dtypes, domain="float", host=describe(level)), level, [x, target])
        np.testing.assert_allclose(target, np.cumsum(x, 1, dtype=np.float32), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", [0, 2, -3])
def test_one_element_at_a_place_of_the_run(place: int) -> None:
    x = RANDOM.integers(0, 100, 3)
    assert kernel_of("torch.index_select", [x, np.array(place)], dim=0, counts_back=True) == "gather"
    assert kernel_of("aten::take", [x, np.array(place)]) == "gather"
    assert kernel_of("aten::put", [x, np.array(place), np.array(7)]) == "scatter"
    for wrong in (3, -4):
        assert kernel_of("torch.index_select", [x, np.array(wrong)], dim=0, counts_back=True) == "refused"
