"""Templates against the reference at many sizes, for any graph; every memory they use lies between guard pages.

    python -m tests.engine.compiler.dynamic.sweeping GROUP [FIRST [STEP [DYNAMIC_KERNELS]]]

writes one line of JSON a graph. It runs in a process of its own: a kernel that leaves its memory ends that process.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

import engine
from engine.cancellation import cancellable_progress, silent
from engine.compiler.builder import Builder
from engine.compiler.codegen import object_code
from engine.compiler.dynamic.template import Loaded
from engine.compiler.runtime import memory
from engine.compiler.runtime.instance import Instance, NotFiniteError, OutsideTableError
from engine.errors import CompileError, EngineError
from engine.graph import execute
from engine.graph.port import Port
from engine.graph.running.reference import as_outputs
from engine.graph.symbolic_inputs import symbolic_specs
from engine.ir.dims import Dim, ShapeEnv
from engine.ir.polynomials import Terms
from engine.options import Options
from engine.tensor import Array, TensorSpec
from tests.corpus_score import DEFAULT, load_compare
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.ir.symbolic_sweep import openings
from tests.engine.layers.samples import all_samples

SIZES: Final = (2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 128, 129, 257)
MOST_ELEMENTS: Final = 2**17
"""Elements of all inputs, and of all outputs, that are tried."""
LARGE: Final = (45, 38, 56)
"""Hints in place of the small sizes that samples have."""
ENOUGH: Final = 12
"""Sets of sizes at which each template is run."""
TRIES: Final = 80
TOLERANCE: Final = 1e-4
"""Of the largest element of an output."""
REFUSALS = ("no operator of the graph has a kernel", "too many axes for machine code")
_LEFT_OUT = ("randomness", "attention-sdpa_extremes", "onnx_nodes-multinomial_certain_written")
"""Samples whose answers differ from run to run, or depend on the order: a sum's last digit."""


@dataclass(kw_only=True)
class Outcome:
    """Result of one sweep.

    Args:
        problem: why the template is not right for all sizes that pass its guards, "" where it is.
        guards: recorded guards, as text.
        passed: sets of sizes at which it was run.
        missed: sets of sizes that failed a guard, though the reference takes them.
        sites: what recorded a guard that holds a size to a number -> how many.
    """

    problem: str = ""
    guards: list[str] = field(default_factory=list)
    is_fixed: bool = False
    passed: int = 0
    missed: int = 0
    sites: dict[str, int] = field(default_factory=dict)


def sweep(graph: engine.RuntimeGraph, inputs: Sequence[Array], seed: int = 0) -> Outcome | None:
    """Return what came of one template of a graph; None where there is none to be made.

    Args:
        inputs: the ones that the template is made for.
    """
    builder = Builder(graph, Options(threads=2, cache=None))
    specs = [TensorSpec(each.shape, each.dtype) for each in inputs]
    outcome = Outcome()
    with _Watch(outcome.sites):
        try:
            template = builder._pipeline.template(specs, builder.host, cancellable_progress(silent), 1)
        except CompileError as error:
            return (
                None if any(each in str(error) for each in REFUSALS) else replace(outcome, problem=f"not made: {error}")
            )
    env, opened = template.env, symbolic_specs(graph.inputs, specs)[1]
    outcome.guards = [f"{env.text_of(terms)} {relation} is {holds}" for (relation, terms), holds in env.guards.items()]
    outcome.is_fixed = template.is_fixed
    if not env.names:
        return None
    code = object_code.load(template.executable.code, builder.host, is_apart=True)
    loaded = Loaded(template, code, builder._parts_of(template, builder._pipeline.latest))
    hints = [atom.hint for atom in env.atoms if atom.operation == "size"]
    draws = _draws(hints, seed)
    for number, draw in enumerate(islice(draws, TRIES)):
        if outcome.passed >= ENOUGH:
            break
        others = [evaluated(spec, env, draw) for spec in opened]
        if sum(math.prod(spec.sizes) for spec in others) > MOST_ELEMENTS:
            continue
        numbers = template.numbers(others)
        if numbers is None:
            outcome.missed += _takes(graph, others)
            continue
        given = [
            drawn(each, spec, (number, index)) for index, (each, spec) in enumerate(zip(inputs, others, strict=True))
        ]
        try:
            if not are_small(graph.infer(others)):
                continue
            with np.errstate(all="ignore"):
                expected = as_outputs(execute(graph.plan, given))
        except EngineError as error:
            expected = error
        problem = _run(builder, loaded, numbers, others, given, expected, number)
        if problem:
            return replace(outcome, problem=f"{dict(zip(env.names, draw, strict=True))}: {problem}")
        outcome.passed += 1
    return outcome


def _run(
    builder: Builder,
    loaded: Loaded,
    numbers: Array,
    specs: Sequence[TensorSpec],
    given: Sequence[Array],
    expected: Sequence[Array] | EngineError,
    number: int,
) -> str:
    """Return how the answer differs from the reference's, "" where it does not."""
    at_end = number % 2 == 0
    memory.allocate = lambda size: guarded_bytes(size, at_end)  # type: ignore[attr-defined]
    held = [
        guarded_array(each, at_end=at_end, dtype=each.dtype.name) if each.size and not each.dtype.hasobject else each
        for each in given
    ]
    try:
        instance = Instance(builder._bound(loaded, numbers, specs), 1 + number % 3 // 2)
        with np.errstate(all="ignore"):
            found = as_outputs(instance.run(held))
        instance.close()
    except (NotFiniteError, OutsideTableError):
        return ""
    except EngineError as error:
        return "" if isinstance(expected, EngineError) else f"refused: {error}"
    if isinstance(expected, EngineError):
        return f"taken, where the reference refuses: {expected}"
    for index, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        problem = difference(mine, theirs)
        if problem:
            return f"output {index}: {problem}"
    return ""


def guarded_bytes(size: int, at_end: bool) -> Array:
    values = np.full(max(1, -(-size // 4)), 0, np.float32)
    return guarded_array(values, at_end=at_end).view(np.uint8)[:size]


def difference(found: Array, expected: Array) -> str:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.shape} {found.dtype}, not {expected.shape} {expected.dtype}"
    if expected.dtype.hasobject or expected.dtype.kind in "biuUS":
        wrong = np.count_nonzero(found != expected)
        return f"{wrong} of {expected.size} elements" if wrong else ""
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    mine, theirs = found.astype(wide), expected.astype(wide)
    finite = theirs[np.isfinite(theirs)]
    most = max(np.abs(finite).max(initial=0), 1e-6)
    step = TOLERANCE if expected.dtype.itemsize >= 4 else 2e-2
    with np.errstate(all="ignore"):
        bad = ~((np.abs(mine - theirs) <= step * most) | (mine == theirs) | (np.isnan(mine) & np.isnan(theirs)))
    if not bad.any():
        return ""
    return f"{np.count_nonzero(bad)} of {expected.size} elements, first at {np.argwhere(bad)[0].tolist()}"


def _takes(graph: engine.RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
    try:
        graph.infer(specs)
    except EngineError:
        return False
    return True


def are_small(found: Any) -> bool:
    return all(
        not isinstance(each, TensorSpec) or not each.is_static or math.prod(each.sizes) <= 8 * MOST_ELEMENTS
        for each in found.values()
    )


def opened_graph(graph: engine.RuntimeGraph, ports: Sequence[Port]) -> engine.RuntimeGraph:
    """Return the graph as a file would have it that leaves these dimensions open, and all that follow from them."""
    annotations = {
        name: TensorSpec((None,) * spec.rank, spec.dtype) for name, spec in graph.source.annotations.items()
    } | {port.operand: port.spec for port in ports if port.spec is not None}
    names = {port.operand: port.size_names for port in ports if any(port.size_names)}
    return graph.rebuilt(replace(graph.source, annotations=annotations, size_names=names))


def _draws(hints: Sequence[int], seed: int) -> Iterator[list[int]]:
    chosen = random.Random(seed)
    yield list(hints)
    nearby = [[max(2, hint + step) for hint in hints] for step in (1, -1)]
    multiples = [[hint * factor for hint in hints] for factor in (2, 3, 7)]
    alike = [[size] * len(hints) for size in chosen.sample(SIZES, len(SIZES))]
    mixed = ([chosen.choice(SIZES) for _ in hints] for _ in count())
    ordered = [*nearby, *multiples]
    for each in alike:
        ordered += [each, *([next(mixed)] if len(hints) > 1 else [])]
    if len(hints) == 1:
        ordered += [[size] for size in range(2, 50)]
    yield from ordered
    if len(hints) > 1:
        yield from mixed


def evaluated(spec: TensorSpec, env: ShapeEnv, draw: Sequence[int]) -> TensorSpec:
    by_name = dict(zip(env.names, draw, strict=True))
    shape = tuple(by_name[repr(dim)] if isinstance(dim, Dim) else dim for dim in spec.shape)
    return TensorSpec(shape, spec.dtype)


def drawn(values: Array, spec: TensorSpec, seed: Sequence[int]) -> Array:
    """Return an input of these sizes, between the values of another."""
    if values.shape == spec.sizes:
        return values
    chosen = np.random.default_rng(seed)
    flat = values.reshape(-1)
    if not flat.size:
        return np.zeros(spec.sizes, spec.dtype)
    first, second = (flat[chosen.integers(0, flat.size, spec.sizes)] for _ in range(2))
    if values.dtype.kind != "f" or values.dtype.itemsize < 4 or not np.isfinite(flat).all():
        return first.astype(spec.dtype)
    share = chosen.random(spec.sizes)
    return (first * share + second * (1 - share)).astype(spec.dtype)


def _kernel_asking() -> str:
    """Return the kernel that has no code of dynamic sizes, where that is why a number is asked for."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name not in ("specialised", "write"):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    kernel = frame.f_locals.get("kernel") or getattr(frame.f_locals.get("self"), "_kernel", None)
    return "" if kernel is None else f"kernels {type(kernel).__name__} in {frame.f_code.co_name} < "


class _Watch:
    """Notes what records guards that hold a size to a number."""

    def __init__(self, sites: dict[str, int]) -> None:
        self._sites = sites

    def __enter__(self) -> None:
        self._recorded = recorded = ShapeEnv._recorded
        sites = self._sites

        def watched(env: ShapeEnv, relation: str, terms: Terms) -> bool:
            is_new = (relation, terms) not in env._decisions
            found = recorded(env, relation, terms)
            if is_new:
                frames = [
                    each
                    for each in traceback.extract_stack()[:-1]
                    if "/engine/" in each.filename
                    and "/tests/" not in each.filename
                    and "/engine/ir/" not in each.filename
                ]
                text = " < ".join(f"{each.filename.rpartition('/engine/')[2]}:{each.lineno}" for each in frames[:-6:-1])
                text = _kernel_asking() + text
                key = f"{'=' if found and env.is_number(relation, terms) else '>'} {text}"
                sites[key] = sites.get(key, 0) + 1
            return found

        ShapeEnv._recorded = watched  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        ShapeEnv._recorded = self._recorded  # type: ignore[method-assign]


Load: TypeAlias = Callable[[], tuple[engine.RuntimeGraph, list[Any]]]
"""Reads a graph, and its inputs."""


def graphs(group: str, folder: Path) -> Iterator[tuple[str, Load]]:
    """Yield the graphs of a group with their inputs: ``layers``, ``networks``, ``cases``, ``onnx`` or a family."""
    if group == "cases":
        for case in sorted((DEFAULT / "cases").iterdir()):
            yield (
                case.name,
                lambda case=case: (
                    engine.load(case / "model.pnnx.param"),
                    load_compare(DEFAULT).load_set(str(case), 0)[0],
                ),
            )
    elif group == "onnx":
        yield from _onnx_graphs(folder)
    else:
        for sample in (each for kind in ("layers", "networks") for each in all_samples(kind)):
            names = (sample.path.parent.name, sample.path.stem, sample.id)
            if group in names and not any(name in _LEFT_OUT for name in names):
                yield sample.id, lambda sample=sample: (engine.load(*sample.extract(folder)), sample.sets[0].inputs)


def _onnx_graphs(folder: Path) -> Iterator[tuple[str, Load]]:
    from docs.generate_onnx_conformance import REASONS, cases
    from tests.engine.onnx_files.models import onnx

    def load(case: Any) -> tuple[engine.RuntimeGraph, list[Any]]:
        path, model = folder / "model.onnx", onnx.ModelProto.FromString(case.model.SerializeToString())
        tensors = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in case.data[0][0]]
        if case.operator in ("Tile", "TopK"):  # counts that are inputs leave nothing to compile
            model.graph.initializer.append(onnx.numpy_helper.from_array(tensors.pop(), model.graph.input.pop().name))
        path.write_bytes(model.SerializeToString())
        if "reduce_prod" in case.name:  # a partial product of many elements would overflow, depending on the order
            tensors[0] = (np.sign(tensors[0]) * 2 ** (np.abs(tensors[0]) / 10 - 0.5)).astype(tensors[0].dtype)
        return engine.load(path), tensors

    for case in cases():
        if case.operator not in REASONS and not case.is_training and case.name not in _LEFT_OUT:
            yield case.name, lambda case=case: load(case)


def _enlarged(graph: engine.RuntimeGraph, inputs: Sequence[Array]) -> list[Array] | None:
    """Return inputs with larger sizes in dynamic dimensions, that samples have small; None where none are taken."""
    env, opened = symbolic_specs(graph.inputs, [TensorSpec(each.shape, each.dtype) for each in inputs])
    hints = [atom.hint for atom in env.atoms if atom.operation == "size"]
    for draw in (
        [LARGE[k % len(LARGE)] for k, _ in enumerate(hints)],
        [LARGE[0] for _ in hints],
        [8 * each for each in hints],
    ):
        specs = [evaluated(each, env, draw) for each in opened]
        count = sum(math.prod(spec.sizes) for spec in specs)
        if env.names and draw != hints and count <= MOST_ELEMENTS and _takes(graph, specs):
            return [drawn(each, spec, (0, k)) for k, (each, spec) in enumerate(zip(inputs, specs, strict=True))]
    return None


Check: TypeAlias = Callable[[engine.RuntimeGraph, Sequence[Array]], Outcome | None]


def _report(check: Check, name: str, graph: engine.RuntimeGraph, inputs: Sequence[Array]) -> None:
    print(json.dumps({"begins": name, "is_graph": False}), flush=True)
    try:
        found = check(graph, inputs)
    except Exception:
        found = Outcome(problem="raised: " + traceback.format_exc()[-1500:])
    if found is not None:
        print(json.dumps({"name": name, **asdict(found)}), flush=True)


def report_all(check: Check, group: str, first: int = 0, step: int = 1, most: int = 2) -> None:
    """Write one line for every opening of every graph of a group."""
    with tempfile.TemporaryDirectory() as folder:
        for name, load in islice(graphs(group, Path(folder)), first, None, step):
            print(json.dumps({"begins": name, "is_graph": True}), flush=True)
            try:
                graph, inputs = load()
            except EngineError:
                continue
            is_plain = all(isinstance(each, (np.ndarray, np.generic)) for each in inputs)
            if not is_plain or len(inputs) != len(graph.inputs):
                continue
            inputs = [np.asarray(each) for each in inputs]
            specs = [TensorSpec(each.shape, each.dtype) for each in inputs]
            for opening, ports in openings(graph, specs, most):
                try:
                    opened = opened_graph(graph, ports)
                    opened.infer(specs)
                except EngineError:  # an operator needs to know them
                    continue
                for text, given in (("small", inputs), ("large", _enlarged(opened, inputs))):
                    if given is not None:
                        _report(check, f"{name}, {opening}, {text}", opened, given)


if __name__ == "__main__":
    report_all(sweep, sys.argv[1], *map(int, sys.argv[2:]))
