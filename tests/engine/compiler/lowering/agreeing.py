"""Compare compiled operators with the reference: every operator, every CPU level, inputs between guard pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import RuntimeGraph, Session, TensorSpec
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import describe
from engine.options import Options
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.graph.build import built, op

_levels_of_the_case: Sequence[str] = LEVELS


def net_of(operators: Sequence[Operator], inputs: Sequence[Array]) -> RuntimeGraph:
    """Return a graph of operators of the inputs 0, 1 ...; all their results except constants are outputs."""
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(inputs)]
    results = [name for each in operators if each.type != "prim::Constant" for name in each.outputs]
    ends = [op("pnnx.Output", f"out_{name}", name) for name in results]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(inputs)}
    return built(*ports, *operators, *ends, **specs)


def check(
    inputs: Sequence[Array],
    *operators: Operator,
    tolerance: float = 0.0,
    levels: Sequence[str] = (),
    is_whole: bool = True,
) -> None:
    """Machine code gives the reference's answers, with shapes and dtypes, and leaves no operator to it.

    Args:
        tolerance: of the largest finite element; 0 for the same numbers.
        levels: of processors, beside this machine's own.
        is_whole: whether no operator may be left to the reference.
    """
    net = net_of(operators, inputs)
    with np.errstate(all="ignore"):
        wanted = Session(net, backend="reference").run(list(inputs))
    session = Session(net, backend="compiled", cache=None, threads=2)
    _hold(session.run(list(inputs)), wanted, tolerance)
    if is_whole:
        assert not [row["why"] for row in session.describe()["operators"] if row.get("why")]
    for number, level in enumerate(levels):
        given = [guarded_array(each, at_end=number % 2 == 0, dtype=each.dtype.name) for each in inputs]
        _hold(CompiledGraph(net, Options(threads=1), describe(level)).run(given), wanted, tolerance)


def everywhere(inputs: Sequence[Array], *operators: Operator, tolerance: float = 0.0) -> None:
    """Check the same at every level that this machine runs; only a test's last case below the host's level."""
    check(inputs, *operators, tolerance=tolerance, levels=_levels_of_the_case)


def begin_case(*, is_last: bool) -> None:
    """Tell ``everywhere`` which case of a test runs now; conftest.py does."""
    global _levels_of_the_case
    _levels_of_the_case = LEVELS if is_last else LEVELS[:1]


def _hold(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        finite = theirs[np.isfinite(theirs)] if theirs.dtype.kind == "f" else theirs
        most = float(np.abs(finite.astype(np.float64)).max(initial=0))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * max(most, 1.0))
