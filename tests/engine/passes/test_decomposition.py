"""Operators written in core operators are replaced by those, and their parts count for the operator of the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.errors import CompilerDefectError, ShapeError
from engine.layers.reduction.loss import MSELoss
from engine.passes import optimise
from engine.passes.decomposition import decomposition, origin
from engine.tensor import BFLOAT16
from tests.engine.graph.build import F32, built, op
from tests.engine.passes.applying import applied, assert_untouched, names, types

X = np.random.default_rng(3).standard_normal((2, 3)).astype(F32)


def alone(type: str, shape: tuple[int | None, ...] = (2, 3), kind: Any = F32, /, **params: Any) -> RuntimeGraph:
    """Return a graph of an operator on two inputs."""
    return built(
        *(op("pnnx.Input", f"in_{k}", "", f"{k}") for k in range(2)),
        op(type, "it", "0 1", "2", **params),
        op("pnnx.Output", "out", "2"),
        **{f"_{k}": TensorSpec(shape, np.dtype(kind)) for k in range(2)},
    )


def test_the_last_part_keeps_the_name_of_the_operator() -> None:
    made = applied(decomposition, alone("aten::mse_loss"), close=1e-6)
    assert types(made) == ["pnnx.Expression", "torch.mean"]
    assert names(made) == ["it::1", "it"]
    assert {*map(origin, names(made))} == {"it"}


def test_a_part_that_is_composite_is_decomposed_in_turn() -> None:
    optimised, reports = optimise(alone("aten::vdot", (3,)))
    assert [each.type for each in optimised.operators if each.layer is not None] == ["torch.matmul"]
    assert {report.name: report.changed for report in reports}["decomposition"] == ("it",)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_half_precision_is_rounded_only_once(dtype: Any) -> None:
    assert_untouched(decomposition, alone("aten::mse_loss", (2, 3), dtype))


@pytest.mark.parametrize("shape", [(None, 2), (None, 3)])
def test_an_operator_that_needs_an_unknown_size_stays(shape: tuple[int | None, ...]) -> None:
    assert_untouched(decomposition, alone("torch.cross", shape))
    assert types(applied(decomposition, alone("torch.cross", (3, 2)), close=1e-6))[-1] == "torch.cat"


@pytest.mark.parametrize("error", [AttributeError, TypeError, ValueError, ShapeError])
def test_any_other_failure_is_a_defect(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> None:
        raise error("a fault of the composition")

    graph = alone("aten::mse_loss")
    monkeypatch.setattr(MSELoss, "compose", faulty)
    with pytest.raises(CompilerDefectError, match="it: the compiler failed: found .*a fault of the composition"):
        decomposition(graph)


def test_the_parts_count_for_the_operator_of_the_file() -> None:
    session = Session(alone("aten::mse_loss"), backend="compiled", cache=None)
    result = session.run([X, X], profile=True)
    assert [(row["name"], row["type"], row["kernel"]) for row in result.profile] == [("it", "aten::mse_loss", "map")]
    assert sum(row["time_us"] for row in result.profile) == sum(each["time_us"] for each in result.kernels)
    assert [row["kernel"] for row in session.describe()["operators"] if "kernel" in row] == ["map"]


def test_the_file_keeps_its_operator() -> None:
    graph = alone("aten::mse_loss")
    Session(graph, backend="compiled", cache=None).run([X, X])
    assert "aten::mse_loss" in graph.text()
