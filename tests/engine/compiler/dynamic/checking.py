"""A program with symbolic sizes against the reference, at sizes far from those it was made for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.compiler import CompiledGraph, weights
from engine.compiler.assembly import generation
from engine.compiler.dynamic.template import Template
from engine.compiler.runtime import memory
from engine.errors import EngineError
from engine.options import Options
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.graph.build import built, op

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 23, 24, 29, 31, 32, 33, 41, 47, 48, 49, 64, 65, 97)
"""Primes, edges of tiles and their neighbours, small and large."""
Shape = tuple[int | None, ...]


def net_of(operators: Sequence[Operator], shape: Shape) -> RuntimeGraph:
    """Return a graph of operators of the input 0; the result of the last one is its output."""
    ends = op("pnnx.Input", "in_0", "", "0"), op("pnnx.Output", "out_0", operators[-1].outputs[0])
    return built(ends[0], *operators, ends[1], _0=shape)


def check(
    operators: Sequence[Operator],
    shape: Shape,
    hints: Sequence[int],
    *,
    tolerance: float = 1e-6,
    threads: int = 1,
    most_guards: int = 4,
    least: int = 16,
    sizes: Sequence[int] = SIZES,
) -> Template:
    """Check that one program gives the reference's answers at many sizes, between pages that may not be touched.

    Args:
        shape: of the input; None for each dynamic size.
        hints: dynamic sizes that the program is made for.
        tolerance: of the largest element.
        most_guards: guards that the program may have; none may hold a size to a number.
        least: size from which on the program has to be right for all that the graph takes.
        sizes: values of the dynamic sizes; each is tried with another one of these.
    """
    net = net_of(operators, shape)
    reference = Session(net, backend="reference")
    with pytest.MonkeyPatch.context() as patch:
        _guard_memory(patch)
        compiled = CompiledGraph(net, Options(threads=threads))
        compiled.run([_input(shape, hints)])
        (loaded,) = compiled.builder._templates._found
        template = loaded.template
        guards = {f"{template.env.text_of(terms)} {key}": found for (key, terms), found in template.env.guards.items()}
        assert not template.is_fixed, guards
        assert len(guards) <= most_guards, guards
        assert not template.executable.reasons
        missed = []
        for number, drawn in enumerate(_draws(len(hints), sizes)):
            values = _input(shape, drawn)
            try:
                wanted = reference.run([values])
            except EngineError:
                continue
            if template.numbers([TensorSpec(values.shape, values.dtype)]) is None:
                missed.append(drawn)
                continue
            found = compiled.run([guarded_array(values, at_end=number % 2 == 0, dtype=values.dtype.name)])
            _hold(found, wanted, tolerance, str(drawn))
        assert not [each for each in missed if min(each) >= least], (missed, guards)
    return template


def _guard_memory(patch: pytest.MonkeyPatch) -> None:
    """Place arenas, constants and weights between pages that may not be touched."""

    def guarded_bytes(count: int) -> Array:
        return guarded_array(np.zeros(max(1, -(-count // 4)), np.float32)).view(np.uint8)[:count]

    patch.setattr(memory, "allocate", guarded_bytes)
    patch.setattr(memory, "_GROWTH", 1)
    for module in (generation, weights):
        for name in ("allocate", "aligned_bytes"):
            if hasattr(module, name):
                patch.setattr(module, name, guarded_bytes)


def _draws(count: int, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return sets of sizes: each of them once for every dynamic size."""
    steps = itertools.count(1, 6)
    turned = [[*sizes[step % len(sizes) :], *sizes[: step % len(sizes)]] for step in itertools.islice(steps, count)]
    return list(zip(*turned, strict=True))


def _input(shape: Shape, sizes: Sequence[int]) -> Array:
    rest = iter(sizes)
    full = [next(rest) if each is None else each for each in shape]
    return np.random.default_rng(full).standard_normal(full, np.float32)


def _hold(found: Sequence[Array], wanted: Sequence[Array], tolerance: float, where: str) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), where
        most = max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * most, err_msg=where)
