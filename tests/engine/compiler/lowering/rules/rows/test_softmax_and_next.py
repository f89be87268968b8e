"""Softmax takes the element-wise operators after it into its kernel, where its rows are the last dimension."""

from __future__ import annotations

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.tensor import Array
from tests.engine.graph.build import built, op


def net(kind: str, dim: int, text: str, *shapes: tuple[int, ...]) -> RuntimeGraph:
    names = "xyz"[: len(shapes)]
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(names)),
        op(kind, "soft", "x", "s", dim=dim),
        op("pnnx.Expression", "after", " ".join(["s", *names[1:]]), "t", expr=text),
        op("pnnx.Output", "out", "t"),
        **{f"_{name}": shape for name, shape in zip(names, shapes, strict=True)},
    )


def kernels(graph: RuntimeGraph, values: list[Array]) -> list[str]:
    """Return the kernels that computed the reference's answer."""
    session = Session(graph, backend="compiled", cache=None)
    (found,), (wanted,) = session.run(values), Session(graph, backend="reference").run(values)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    return [row["kernel"] for row in session.run(values, profile=True).kernels]


def values(*shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("kind", ["F.softmax", "F.log_softmax"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("mul(@0,0.5)", [(2, 3, 5, 33)]),
        ("add(@0,@1)", [(2, 3, 5, 33), (2, 3, 5, 33)]),
        ("mul(@0,@1)", [(2, 3, 5, 33), (2, 3, 5, 1)]),
        ("add(mul(@0,@1),@2)", [(5, 1000), (5, 1), (1000,)]),
        ("neg(@0)", [(7, 1)]),
        ("sub(@0,@1)", [(64,), (64,)]),
    ],
)
def test_along_the_last_dimension(kind: str, text: str, shapes: list[tuple[int, ...]]) -> None:
    assert kernels(net(kind, -1, text, *shapes), values(*shapes)) == ["softmax"]


@pytest.mark.parametrize("shapes", [[(2, 3, 5, 33), (2, 1, 1, 33)], [(4, 9), (9,)]])
def test_along_another_dimension_what_follows_is_a_map(shapes: list[tuple[int, ...]]) -> None:
    assert kernels(net("F.softmax", 0, "add(@0,@1)", *shapes), values(*shapes))[-1] == "map"


@pytest.mark.parametrize("shapes", [[(5, 33), (2, 5, 33)], [(2, 3, 5, 33), (3, 1, 1)]])
def test_what_does_not_follow_its_rows_one_by_one_stays_outside(shapes: list[tuple[int, ...]]) -> None:
    assert kernels(net("F.softmax", -1, "mul(@0,@1)", *shapes), values(*shapes)) == ["softmax", "map"]


def test_rows_that_are_not_finite_are_nan_and_no_others() -> None:
    x, y = values((4, 33), (4, 33))
    x[1, 5], x[2, 7] = np.nan, np.inf
    graph = net("F.softmax", -1, "add(@0,@1)", x.shape, y.shape)
    (found,) = Session(graph, backend="compiled", cache=None).run([x, y])
    assert np.isnan(found[1:3]).all() and np.isfinite(found[[0, 3]]).all()
