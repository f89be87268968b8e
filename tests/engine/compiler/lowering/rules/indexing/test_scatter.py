"""Elements written, added and the like where an index says: the reference's answers, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.indexing.gather import IndexOperand
from engine.compiler.kernels.indexing.scatter import ElementScatter
from engine.pnnx import Operator
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.lowering.agreeing import check
from tests.engine.compiler.lowering.rules.indexing.test_gather import kernel_of, kernels_of
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(23)


@pytest.mark.parametrize("shape", [(1,), (17,), (3, 5), (2, 3, 65)], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_what_meets_at_a_place_adds_up(shape: tuple[int, ...], dtype: type) -> None:
    x = RANDOM.standard_normal(shape).astype(np.float32)
    for dim in range(-1, len(shape)):
        sizes = [max(1, size - 1) for size in shape]
        sizes[dim] = 9
        index = RANDOM.integers(0, shape[dim], sizes).astype(dtype)
        source = RANDOM.standard_normal([size + 1 for size in sizes]).astype(np.float32)
        assert kernel_of("torch.scatter_add", [x, index, source], dim=dim) in ("scatter", "refused")


@pytest.mark.parametrize("wrong", [-1, 3, 2**62, -(2**63)])
def test_an_index_outside_is_refused_as_the_reference_does(wrong: int) -> None:
    x, index = RANDOM.standard_normal((3, 5)).astype(np.float32), np.zeros((2, 5), np.int64)
    index[1, 4] = wrong
    assert kernel_of("torch.scatter_add", [x, index, x], dim=0) == "refused"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wrong", [-1, 3, 2**62])
def test_nothing_outside_is_written(level: str, wrong: int) -> None:
    target, source = (guarded_array(np.ones((3, 5), np.float32)) for _ in range(2))
    index, fault_flag = np.full((2, 5), wrong), np.zeros(1, np.int32)
    index[0] = 2
    at = IndexOperand(strides=(5, 1), bits=64, size=3, step=5, wraps=False)
    kernel = ElementScatter(
        sizes=(2, 5), target=(0, 1), source=(5, 1), positions=(at,), mode="add", dtype="float32", host=describe(level)
    )
    run(kernel, level, [target, source, index, fault_flag])
    assert fault_flag[0] == 2
    np.testing.assert_array_equal(target, [[1] * 5, [1] * 5, [2] * 5])


def numbers(dtype: str, *shape: int) -> np.ndarray:
    most = 5 if np.dtype(dtype).itemsize > 1 else 100  # sums of bytes go round
    x = RANDOM.integers(-most, most, shape).astype(dtype)
    if dtype.startswith("float"):
        x = np.where(RANDOM.random(shape) < 0.1, RANDOM.choice([np.nan, np.inf, -np.inf], shape), x).astype(dtype)
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int16", "int8", "uint8"])
@pytest.mark.parametrize("shape", [(1,), (17,), (3, 5), (2, 3, 65)], ids=str)
def test_the_last_one_written_counts_and_extremes_keep_nan(dtype: str, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, *shape)
    for dim in range(-1, len(shape)):
        sizes = [max(1, size - 1) for size in shape]
        sizes[dim] = 9
        index, source = RANDOM.integers(0, shape[dim], sizes), numbers(dtype, *[size + 1 for size in sizes])
        slices = [9 if k == dim % len(shape) else size for k, size in enumerate(shape)]
        line = RANDOM.integers(0, shape[dim], 9)
        operators = [
            op("torch.scatter", "written", "0 1 2", "a", dim=dim),
            op("torch.scatter", "filled", "0 1", "b", dim=dim, value=2),
            op("torch.index_add", "added", "0 3 4", "c", dim=dim, alpha=1),
            *(scatter_reduce(reduce, dim=dim, include_self=True) for reduce in ("sum", "prod", "amax", "amin")),
        ]
        found = kernels_of(operators, [x, index, source, line, numbers(dtype, *slices)])
        assert set(found.values()) == {"scatter"}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(1,), (17,), (3, 5), (2, 3, 65)], ids=str)
def test_means_and_what_is_there_does_not_take_part(dtype: str, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, *shape)
    for dim in range(-1, len(shape)):
        sizes = [max(1, size - 1) for size in shape]
        sizes[dim] = 9
        index, source = RANDOM.integers(0, shape[dim], sizes), numbers(dtype, *[size + 1 for size in sizes])
        reductions = ("sum", "prod", "mean", "amax", "amin")
        ways = [scatter_reduce(each, dim=dim, include_self=is_in) for each in reductions for is_in in (False, True)]
        assert set(kernels_of(ways, [x, index, source]).values()) <= {"map", "scatter"}


def scatter_reduce(reduce: str, *, dim: int, include_self: bool) -> Operator:
    """Return a scatter_reduce of operands 0, 1, 2, named after its reduction."""
    name = f"{reduce}_{include_self}"
    given = {"dim": dim, "reduce": reduce, "include_self": include_self}
    return op("torch.scatter_reduce", name, "0 1 2", f"result_{name}", **given)


def test_means_of_whole_slices() -> None:
    x, line, parts = numbers("float32", 4, 6), np.array([1, 1, 3, 1, 5]), numbers("float32", 4, 5)
    values = {"dim": 1, "mean": "mean", "amax": "amax", "no": False, "yes": True}
    given = [op("prim::Constant", name, "", name, value=value) for name, value in values.items()]
    ways = [(way, is_in) for way in ("mean", "amax") for is_in in ("no", "yes")]
    means = [op("aten::index_reduce", f"it_{k}", f"0 dim 1 2 {a} {b}", f"r{k}") for k, (a, b) in enumerate(ways)]
    check([x, line, parts], *given, *means, tolerance=1e-6)


@pytest.mark.parametrize("wrong", [-4, 3, 2**62])
def test_a_place_outside_is_refused_as_the_reference_does(wrong: int) -> None:
    x, index = numbers("float32", 3, 5), np.array([[0, 1, wrong]])
    assert kernel_of("torch.scatter", [x, index, x], dim=0) == "refused"
    assert kernel_of("Tensor.index_put", [x, x[:1, :1]], indices=f"[[0,{wrong}]]") == "refused"


def test_indexed_places_are_written() -> None:
    x = numbers("float32", 2, 3, 4, 17)
    for indices in ("[[1,0,-1]]", "[None,[2,-3]]", "[[1,0],None,[3,3]]", "[[1,-1],[0,2]]"):
        for accumulate in (False, True):
            given = {"indices": indices, "accumulate": accumulate}
            assert kernel_of("Tensor.index_put", [x, numbers("float32", 1)], **given) == "scatter"


def test_a_single_element_is_written() -> None:
    x, index, value = np.arange(3, dtype=np.float32), np.array([1]), np.array(7, np.float32)
    assert kernel_of("aten::put", [x, index, value]) == "scatter"


def test_pooled_values_go_back_to_where_they_came_from() -> None:
    x = RANDOM.standard_normal((2, 3, 4, 5)).astype(np.float32)
    index = np.argsort(RANDOM.random((2, 3, 80)), -1)[..., :20].reshape(2, 3, 4, 5)
    given = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    assert kernel_of("nn.MaxUnpool2d", [x, index], **given) == "scatter"
    index[1, 2, 3, 4] = 80
    assert kernel_of("nn.MaxUnpool2d", [x, index], **given) == "refused"
