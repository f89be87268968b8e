"""One pass over a small graph: what it made, and whether that still gives the reference's answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import RuntimeGraph, TensorSpec
from engine.graph import execute
from engine.passes import Pass
from engine.passes.expression_fusion import expression_fusion

FOLDED = 1e-5
"""Relative to the largest value: how far weights that were folded may take an answer."""


def applied(run: Pass, graph: RuntimeGraph, *inputs: np.ndarray, close: float = 0.0) -> RuntimeGraph:
    """The graph a pass makes, built from its source alone.

    Checks that it answers as the given one does: to the bit, or to ``close`` of the largest value; a zero that an
    activation leaves may change its sign in an expression. Inputs are drawn at random where none are given.
    """
    made = RuntimeGraph.from_source(run(graph))
    made.build()
    inputs = inputs or tuple(drawn(graph))
    assert_same_ports(graph, made)
    assert_answers(execute(made.plan, inputs), execute(graph.plan, inputs), close, signed=run is not expression_fusion)
    return made


def assert_untouched(run: Pass, graph: RuntimeGraph) -> None:
    assert run(graph) is graph.source


def assert_same_ports(before: RuntimeGraph, after: RuntimeGraph) -> None:
    assert after.inputs == before.inputs
    assert [port.name for port in after.outputs] == [port.name for port in before.outputs]
    for old, new in zip(before.outputs, after.outputs, strict=True):
        assert new.spec == old.spec or says_more(new.spec, old.spec)


def says_more(new: TensorSpec | None, old: TensorSpec | None) -> bool:
    """Return whether a spec only closes dimensions that were open before."""
    if new is None or old is None:
        return old is None
    is_alike = new.dtype == old.dtype and new.rank == old.rank
    return is_alike and all(m is None or m == n for m, n in zip(old.shape, new.shape, strict=True))


def assert_answers(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], close: float = 0.0, signed: bool = True
) -> None:
    """Equal to the bit, or to ``close`` of the largest value; if not ``signed`` but for signs of zeros and NaN."""
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]
    for got, want in zip(found, expected, strict=True):
        if signed and (close == 0 or want.dtype.kind in "biu"):
            assert got.tobytes() == want.tobytes(), f"{got} is not {want}"
        elif close == 0 or want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            scale = float(np.max(np.abs(want.astype(wide)), initial=0, where=np.isfinite(want)))
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=close, atol=close * scale)


def runnable(graph: RuntimeGraph, inputs: list[np.ndarray]) -> bool:
    """Return whether the graph takes these inputs as it is, rather than its form for any batch."""
    pairs = zip(graph.inputs, inputs, strict=True)
    return all(
        m in (None, n)
        for port, array in pairs
        if port.spec is not None
        for m, n in zip(port.spec.shape, array.shape, strict=True)
    )


def drawn(graph: RuntimeGraph, size: int = 2) -> list[np.ndarray]:
    """Random inputs; dynamic dimensions are ``size``."""
    random = np.random.default_rng(0)
    shapes = [tuple(size if dim is None else dim for dim in port.spec.shape) for port in graph.inputs]
    return [
        (random.standard_normal(shape) * 3).astype(port.spec.dtype)
        for port, shape in zip(graph.inputs, shapes, strict=True)
    ]


def types(graph: RuntimeGraph) -> list[str]:
    """Types of the operators in file order, without the graph's inputs and outputs."""
    return [op.type for op in graph.source.operators if op.type not in ("pnnx.Input", "pnnx.Output")]


def names(graph: RuntimeGraph) -> list[str]:
    """Their names."""
    return [op.name for op in graph.source.operators if op.type not in ("pnnx.Input", "pnnx.Output")]


def expressions(graph: RuntimeGraph) -> list[str]:
    """The texts of all expressions."""
    return [str(op.params["expr"]) for op in graph.source.operators if op.type == "pnnx.Expression"]
