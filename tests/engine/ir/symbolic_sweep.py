"""Inference with symbolic sizes against inference with numbers, for any graph."""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

import engine
from engine.errors import EngineError
from engine.graph.port import Port
from engine.graph.symbolic_inputs import SizesOf, symbolic_specs
from engine.ir.dims import Dim, ShapeEnv
from engine.ir.polynomials import Terms
from engine.ir.ratios import Ratio
from engine.ir.tables import Table
from engine.limits import RoomError
from engine.tensor import TensorSpec

SIZES: Final = (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 97, 127, 128, 160, 224)
MANY: Final = 30


@dataclass(kw_only=True)
class Outcome:
    """Result of one sweep.

    Args:
        problem: why one program does not stand for all sizes that pass its guards, "" where it does.
        guards: recorded guards, as text.
        specialised: those of them that hold a size to a number.
        passed: sets of sizes that passed the guards.
        missed: sets of sizes that did not, though the graph takes them.
        sites: (file, line, function) that recorded a guard -> how many.
    """

    problem: str = ""
    guards: list[str] = field(default_factory=list)
    specialised: list[str] = field(default_factory=list)
    passed: int = 0
    missed: int = 0
    sites: Counter[str] = field(default_factory=Counter)


def sweep(
    graph: engine.RuntimeGraph, ports: Sequence[Port], specs: Sequence[TensorSpec], draws: Sequence[Sequence[int]] = ()
) -> Outcome | None:
    """Return what came of inference with symbolic sizes; None where there are none, or the graph refuses the numbers.

    Args:
        ports: of the graph, with the dimensions to open as None.
        specs: of the inputs whose sizes are the hints.
        draws: values of the dynamic sizes to try; random ones where there are none.
    """
    env, opened = symbolic_specs(ports, specs)
    if not env.names:
        return None
    outcome = Outcome()
    _watch(env, outcome.sites)
    try:
        found = graph.infer(opened)
    except EngineError as error:
        return replace(outcome, problem=f"error: {error}") if _takes(graph, specs) else None
    outcome.guards = [f"{env.text_of(terms)} {relation} is {holds}" for (relation, terms), holds in env.guards.items()]
    outcome.specialised = [
        env.text_of(terms)
        for (relation, terms), holds in env.guards.items()
        if holds and relation == "== 0" and _is_number_only(env, terms)
    ]
    dims: list[int] = []
    for value in found.values():
        _collect(value, dims)
    table = Table(env, dims)
    hints = [env.atoms[k].hint for k in range(len(env.atoms)) if env.atoms[k].operation == "size"]
    for draw in [hints, *(draws or _draws(hints))]:
        inputs = [_evaluated(spec, env, draw) for spec in opened]
        assert SizesOf(env, opened)(inputs) == list(draw)
        computed = table(draw)
        numbers = None if computed is None else computed.tolist()
        if numbers is None:
            outcome.missed += _takes(graph, inputs)
            continue
        outcome.passed += 1
        try:
            expected = graph.infer(inputs)
        except RoomError:  # memory is looked at for the sizes of a run, and no guard says how much there is
            continue
        except EngineError as error:
            return replace(outcome, problem=f"numbers {draw} are refused: {error}")
        queue = iter(numbers)
        for name, value in found.items():
            difference = _difference(value, expected[name], queue)
            if difference:
                return replace(outcome, problem=f"{name} at {draw}: {difference}")
    if not outcome.passed:
        return replace(outcome, problem="the hints fail the guards")
    return outcome


def _takes(graph: engine.RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
    try:
        graph.infer(specs)
    except EngineError:
        return False
    return True


def _is_number_only(env: ShapeEnv, terms: Terms) -> bool:
    """Return whether an equality holds one expression to a number; a remainder of 0 is a class."""
    products = [product for product, _ in terms if product]
    return len(products) < 2 and not (terms == ((products[0], 1),) and env.atoms[products[0][0]].operation == "%")


def _watch(env: ShapeEnv, sites: Counter[str]) -> None:
    """Note who records a guard."""
    decide: Callable[[str, Terms], bool] = env.decide

    def watched(relation: str, terms: Terms) -> bool:
        before = len(env.guards)
        found = decide(relation, terms)
        if len(env.guards) > before:
            frames = [
                each
                for each in traceback.extract_stack()[:-1]
                if "/engine/" in each.filename
                and not each.filename.endswith(("engine/ir/dims.py", "symbolic_sweep.py"))
            ]
            last = frames[-1]
            kind = "=" if relation == "== 0" and found and _is_number_only(env, terms) else ">"
            if last.filename.endswith("ir/sizes.py"):
                frame = sys._getframe()
                while frame is not None and frame.f_code.co_name != "_with_sizes":
                    frame = frame.f_back  # type: ignore[assignment]
                if frame is not None:
                    layer, given = frame.f_locals["layer"], frame.f_locals["values"]
                    sites[f"{kind} values of {type(layer).__name__} {str(given)[:80]}"] += 1
            sites[f"{kind} {last.filename.rpartition('/engine/')[2]}:{last.lineno} {last.name}"] += 1
        return found

    env.decide = watched  # type: ignore[method-assign]


def _draws(hints: Sequence[int]) -> list[list[int]]:
    chosen = random.Random(len(hints))
    multiples = [[hint * factor for hint in hints] for factor in (2, 3, 4, 7, 8)]
    nearby = [[hint + step for hint in hints] for step in (1, 2, 8, 16)]
    alike = [[size] * len(hints) for size in (2, 3, 7, 16, 17, 64)]
    rest = MANY - len(multiples) - len(nearby) - len(alike)
    return [*multiples, *nearby, *alike, *([chosen.choice(SIZES) for _ in hints] for _ in range(rest))]


def _evaluated(spec: TensorSpec, env: ShapeEnv, draw: Sequence[int]) -> TensorSpec:
    by_name = dict(zip(env.names, draw, strict=True))
    shape = tuple(by_name[repr(dim)] if isinstance(dim, Dim) else dim for dim in spec.shape)
    return TensorSpec(shape, spec.dtype, spec.value)


def _collect(value: Any, dims: list[int]) -> None:
    """Append every symbolic size in a value, in the order ``_difference`` takes them."""
    for leaf in (each.size if isinstance(each, Ratio) else each for each in _leaves(value)):
        if isinstance(leaf, Dim):
            dims.append(leaf)  # type: ignore[arg-type]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, TensorSpec):
        yield from value.shape
        if value.value is not None and value.value.dtype.hasobject and not value.dtype.hasobject:
            yield from value.value.flat
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        yield from value.flat
    else:
        yield value


def _difference(found: Any, expected: Any, numbers: Iterator[int]) -> str:
    """Return how a symbolic value differs from the one that numbers give, "" where it does not."""
    plain = _plain(found, numbers)
    if isinstance(plain, TensorSpec) and isinstance(expected, TensorSpec):
        if plain != expected:
            return f"{plain}, not {expected}"
        if plain.value is None:  # with numbers more is known: how many there are
            return ""
        if expected.value is None:
            return f"value {plain.value}, not None"
        are_equal = np.array_equal(plain.value, expected.value, equal_nan=plain.dtype.kind == "f")
        if plain.dtype != plain.value.dtype or not are_equal:
            return f"value {plain.value!r}, not {expected.value!r}"
        return ""
    if isinstance(plain, (tuple, list)):
        if type(plain) is not type(expected) or len(plain) != len(expected):
            return f"{plain}, not {expected}"
        return next((each for pair in zip(plain, expected, strict=True) if (each := _difference(*pair, numbers))), "")
    if type(plain) is not type(expected):
        return f"{plain!r}, not {expected!r}"
    if isinstance(plain, np.ndarray):
        return "" if np.array_equal(plain, expected) else f"{plain}, not {expected}"
    if isinstance(plain, float) and plain != plain and expected != expected:
        return ""
    return "" if plain == expected else f"{plain!r}, not {expected!r}"


def _plain(value: Any, numbers: Iterator[int]) -> Any:
    if isinstance(value, Ratio):
        return _plain(value.size, numbers) / value.by
    if isinstance(value, Dim):
        return next(numbers)
    if isinstance(value, TensorSpec):
        shape = tuple(_plain(dim, numbers) for dim in value.shape)
        array = value.value
        if array is not None and array.dtype.hasobject and not value.dtype.hasobject:
            items = [_plain(item, numbers) for item in array.flat]
            array = np.array(items, value.dtype).reshape(array.shape)
        return TensorSpec(shape, value.dtype, array)
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(item, numbers) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item, numbers) for key, item in value.items()}
    return value


def openings(
    graph: engine.RuntimeGraph, specs: Sequence[TensorSpec], most: int = 8
) -> Iterator[tuple[str, list[Port]]]:
    """Return ports with some dimensions open: those the file has open, and groups of dimensions of one size."""
    if any(port.spec is not None and not port.spec.is_static for port in graph.inputs):
        yield "as the file has it", list(graph.inputs)
    groups: dict[frozenset[tuple[int, int]], str] = {}
    places = [(k, axis, size) for k, spec in enumerate(specs) for axis, size in enumerate(spec.sizes) if size > 1]
    for _, axis, size in places:
        same = frozenset((k, each) for k, each, other in places if each == axis and other == size)
        groups.setdefault(same, f"axis {axis} of {size}")
    for _, _, size in places:
        groups.setdefault(frozenset((k, axis) for k, axis, other in places if other == size), f"all of {size}")
    for group, name in list(groups.items())[:most]:
        yield name, [_opened(port, spec, {axis for k, axis in group if k == number})
                     for number, (port, spec) in enumerate(zip(graph.inputs, specs, strict=True))]  # fmt: skip


def _opened(port: Port, spec: TensorSpec, axes: set[int]) -> Port:
    shape = tuple(None if axis in axes else size for axis, size in enumerate(spec.shape))
    names = tuple("size" if axis in axes else None for axis in range(spec.rank))
    return replace(port, spec=TensorSpec(shape, spec.dtype), size_names=names)
