"""Stages: what follows a size that values decide runs as machine code, and gives the reference's answers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.errors import EngineError
from engine.pnnx import Operator
from tests.engine.graph.build import built, conv, op

RANDOM = np.random.default_rng(11)
BOOL, INT64 = np.dtype(np.bool_), np.dtype(np.int64)


def linear(name: str, source: str, target: str, features: int) -> Operator:
    weight = (RANDOM.standard_normal((features, features)) / np.sqrt(features)).astype(np.float32)
    given = {"in_features": features, "out_features": features, "bias": False, "weight": weight}
    return op("nn.Linear", name, source, target, **given)


def rows_where(mask: str, x: str, target: str, name: str) -> list[Operator]:
    """Operators that take the rows of ``x`` where a mask is true."""
    return [
        op("torch.nonzero", f"{name}_nonzero", mask, f"{name}_at"),
        op("torch.squeeze", f"{name}_squeeze", f"{name}_at", f"{name}_rows", dim=1),
        op("torch.index_select", f"{name}_select", f"{x} {name}_rows", target, dim=0),
    ]


def masked(rows: int | None = None) -> RuntimeGraph:
    """Return a graph that takes the rows of a matrix where a mask is true, and computes two layers of them."""
    return built(
        op("pnnx.Input", "in_0", "", "x"),
        op("pnnx.Input", "in_1", "", "mask"),
        *rows_where("mask", "x", "taken", "first"),
        linear("linear_0", "taken", "a", 24),
        op("nn.ReLU", "relu", "a", "b"),
        linear("linear_1", "b", "c", 24),
        op("pnnx.Output", "out_0", "c"),
        _x=(rows, 24),
        _mask=TensorSpec((rows,), BOOL),
    )


def regulated() -> RuntimeGraph:
    """Return a graph that repeats columns as often as another input says, with convolutions behind."""
    return built(
        op("pnnx.Input", "in_0", "", "x"),
        op("pnnx.Input", "in_1", "", "counts"),
        op("torch.repeat_interleave", "repeat", "x counts", "wide", dim=2, labels=("input", "repeats")),
        conv("conv_0", "wide", "a", (8, 8), (3,), padding=(1,)),
        op("nn.ReLU", "relu", "a", "b"),
        conv("conv_1", "b", "c", (8, 8), (3,), padding=(1,)),
        op("nn.ReLU", "relu_1", "c", "d"),
        op("pnnx.Output", "out_0", "d"),
        _x=(1, 8, 7),
        _counts=TensorSpec((7,), INT64),
    )


def nested() -> RuntimeGraph:
    """Return a graph whose second mask follows from rows that the first has taken."""
    return built(
        op("pnnx.Input", "in_0", "", "x"),
        op("pnnx.Input", "in_1", "", "mask"),
        *rows_where("mask", "x", "taken", "first"),
        linear("linear_0", "taken", "a", 24),
        op("torch.mean", "means", "a", "mean", dim=(1,), keepdim=False),
        op("torch.gt", "compare", "mean", "is_large", other=0.0),
        *rows_where("is_large", "a", "b", "second"),
        linear("linear_1", "b", "c", 24),
        op("nn.ReLU", "relu", "c", "d"),
        linear("linear_2", "d", "e", 24),
        op("pnnx.Output", "out_0", "e"),
        op("pnnx.Output", "out_1", "a"),
        _x=(None, 24),
        _mask=TensorSpec((None,), BOOL),
    )


def masked_inputs(rows: int, taken: int) -> list[np.ndarray]:
    mask = np.zeros(rows, np.bool_)
    mask[RANDOM.permutation(rows)[:taken]] = True
    return [RANDOM.standard_normal((rows, 24)).astype(np.float32), mask]


def check(session: Session, reference: Session, inputs: Sequence[np.ndarray]) -> None:
    try:
        expected = reference.run(inputs)
    except EngineError as error:
        with pytest.raises(type(error)):
            session.run(inputs)
        return
    for mine, its in zip(session.run(inputs), expected, strict=True):
        assert mine.shape == its.shape and mine.dtype == its.dtype
        np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5)


def kernels(session: Session) -> dict[str, str | None]:
    return {row["name"]: row.get("kernel") for row in session.describe()["operators"]}


@pytest.mark.parametrize("rows", [60, None])
def test_rows_that_a_mask_takes_are_computed_by_kernels(rows: int | None) -> None:
    net = masked(rows)
    reference = Session(net, backend="reference")
    with closing(Session(net, backend="compiled", threads=1, cache=None)) as session:
        for taken in (17, 0, 1, 2, 59, 60, 16, 33):
            check(session, reference, masked_inputs(60, taken))
        found = kernels(session)
        assert found["linear_0"] == found["linear_1"] == "conv", found
        assert found["first_nonzero"] == "reference"


def test_dynamic_sizes_before_a_stage_do_not_bind_those_behind_it() -> None:
    net = masked()
    reference = Session(net, backend="reference")
    with closing(Session(net, backend="compiled", threads=2, cache=None)) as session:
        for rows in (5, 64, 1, 300, 2, 0):
            for taken in {0, min(1, rows), rows // 2, rows}:
                check(session, reference, masked_inputs(rows, taken))


def test_columns_repeated_by_counts_are_convolved_by_kernels() -> None:
    net = regulated()
    reference = Session(net, backend="reference")
    with closing(Session(net, backend="compiled", threads=1, cache=None)) as session:
        x = RANDOM.standard_normal((1, 8, 7)).astype(np.float32)
        for most in (4, 1, 2, 40, 300):
            check(session, reference, [x, RANDOM.integers(0, most, 7)])
        assert kernels(session)["conv_1"] == "conv"


def test_a_stage_has_stages_of_its_own() -> None:
    net = nested()
    reference = Session(net, backend="reference")
    with closing(Session(net, backend="compiled", threads=1, cache=None)) as session:
        for rows, taken in ((40, 21), (40, 0), (7, 7), (200, 90), (40, 1)):
            check(session, reference, masked_inputs(rows, taken))
        found = kernels(session)
        assert found["linear_0"] == found["linear_2"] == "conv", found


def test_counts_that_outgrow_memory_are_refused_before_they_are_repeated() -> None:
    with closing(Session(regulated(), backend="compiled", threads=1, cache=None)) as session:
        x = np.ones((1, 8, 7), np.float32)
        with pytest.raises(EngineError, match="bytes"):
            session.run([x, np.full(7, 2**40)])
        with pytest.raises(EngineError):
            session.run([x, np.full(7, -1)])
        assert session.run([x, np.ones(7, np.int64)])[0].shape == (1, 8, 7)


def test_stages_are_found_in_the_cache_by_a_later_process(tmp_path: Path) -> None:
    net, inputs = masked(), masked_inputs(50, 20)
    for _ in range(2):
        with closing(Session(net, backend="compiled", threads=1, cache=tmp_path)) as session:
            check(session, Session(net, backend="reference"), inputs)
    with closing(Session(net, backend="compiled", threads=1, cache=tmp_path)) as session:
        session.run(inputs)
        assert session.describe()["compiler"]["is_cached"]


def test_threads_with_different_sizes_each_get_their_own_answers() -> None:
    net = masked()
    reference = Session(net, backend="reference")
    given = [masked_inputs(rows, taken) for rows, taken in ((30, 11), (45, 2), (8, 8), (100, 63))]
    expected = [reference.run(inputs)[0] for inputs in given]
    with closing(Session(net, backend="compiled", threads=1, cache=None)) as session:
        session.run(given[0])

        def run(number: int) -> bool:
            k = number % len(given)
            return np.allclose(session.run(given[k])[0], expected[k], rtol=1e-5, atol=1e-5)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(run, range(200)))


def test_a_profile_counts_a_stage_with_its_first_operator() -> None:
    with closing(Session(masked(60), backend="compiled", threads=1, cache=None)) as session:
        inputs = masked_inputs(60, 20)
        session.run(inputs)
        profile = session.run(inputs, profile=True).profile
    assert profile is not None
    spent = {row["name"]: row["time_us"] for row in profile}
    assert spent["first_squeeze"] > 0 and spent["linear_0"] == 0
