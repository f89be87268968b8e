"""Inputs from clients: values, dtypes, shapes and layouts that no model was recorded with.

Every recorded sample is a graph with inputs that it takes. A case is the graph, with its sizes as the file has them, or
left open, or with nothing said of its inputs at all, and inputs that were changed one after the other. It runs on both
backends: each gives a result or an EngineError that a layer foresaw, and both say the same. Inputs of which only the
layout in memory was changed give what they gave before.

    python -m tests.fuzz.data --seconds 600 --seed 1
    python -m tests.fuzz.data --only torch.gather --backend reference --show ShapeError
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

import engine
from engine import pnnx
from engine.tensor import TensorSpec
from tests.engine.layers.samples import Sample, all_samples
from tests.fuzz.agreement import agreed, compare, is_random
from tests.fuzz.child import Limits, run
from tests.fuzz.conditioning import SUMS, has, rounding_of
from tests.fuzz.parameters import refusal, report

Array = np.ndarray[Any, Any]

FRONT_END: Final = "tests.fuzz.data:attempt"
FRONT_ENDS: Final = {"reference": f"{FRONT_END}_reference", "compiled": FRONT_END}
LIMITS: Final = Limits(cpu_s=10.0)

FORMS: Final = ("written", "open", "bare")
"""How much a file declares of its inputs: shapes and dtypes, ranks and dtypes, or nothing."""

_OFTEN: Final = ("written", "open", "bare", "bare")
_MOST_ELEMENTS: Final = 1 << 18
# The large summand is a power of two: any number of them have an exact sum, and a row of them no spread.
_FLOATS: Final = {
    "nan": np.nan, "inf": np.inf, "-inf": -np.inf, "large": 3e38, "large summand": 2.0**100, "denormal": 1e-42,
    "-0": -0.0, "-1.5": -1.5,
}  # fmt: skip
_WHOLE: Final = {
    "2^31-1": 2**31 - 1, "-2^31": -(2**31), "2^63-1": 2**63 - 1, "-2^63": -(2**63), "-1": -1, "0": 0, "1": 1, "7": 7,
    "255": 255,
}  # fmt: skip
_DTYPES: Final = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
                  "bfloat16", "float32", "float64", "complex64", "complex128")  # fmt: skip


def _all_of(value: float) -> Callable[[Array], Array]:
    return lambda x: _filled(x, value, slice(None))


def _one_of(value: float) -> Callable[[Array], Array]:
    return lambda x: _filled(x, value, slice(x.size // 2, x.size // 2 + 1))


def _filled(x: Array, value: float, where: slice) -> Array:
    result = x.copy()
    if x.dtype.kind in "iu":
        bounds = np.iinfo(x.dtype)
        value = 0 if value != value else max(min(value, bounds.max), bounds.min)
        result.reshape(-1)[where] = int(value)
    elif x.dtype.kind == "b":
        result.reshape(-1)[where] = value == value and value > 0
    else:
        result.reshape(-1)[where] = value
    return result


def _to(dtype: str) -> Callable[[Array], Array]:
    return lambda x: x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def _resized(axis: int, size: Callable[[int], int]) -> Callable[[Array], Array]:
    """One axis cut, or repeated, to another length."""

    def change(x: Array) -> Array:
        if not -x.ndim <= axis < x.ndim:
            return x
        old, new = x.shape[axis], size(x.shape[axis])
        if not old:
            shape = tuple(new if each == axis % x.ndim else dim for each, dim in enumerate(x.shape))
            return np.ones(shape, x.dtype)
        return np.ascontiguousarray(np.take(x, np.arange(new) % old, axis))

    return change


def _odd_strides(x: Array) -> Array:
    wide = np.zeros(tuple(2 * dim for dim in x.shape), x.dtype)
    view = wide[(slice(None, None, 2),) * x.ndim]
    view[...] = x
    return view


def _unaligned(x: Array) -> Array:
    raw = np.empty(x.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(x.tobytes(), np.uint8)
    return raw.view(x.dtype).reshape(x.shape)


def _read_only(x: Array) -> Array:
    result = x.copy()
    result.flags.writeable = False
    return result


def _backwards(x: Array) -> Array:
    every = (slice(None, None, -1),) * x.ndim
    return x[every].copy()[every]


VALUES: Final = {
    **{f"all {name}": _all_of(value) for name, value in (_FLOATS | _WHOLE).items()},
    **{f"one {name}": _one_of(value) for name, value in (_FLOATS | _WHOLE).items()},
}
TYPES: Final = {dtype: _to(dtype) for dtype in _DTYPES}
SHAPES: Final[dict[str, Callable[[Array], Array]]] = {
    "0-dim": lambda x: x.reshape(-1)[:1].reshape(()) if x.size else np.zeros((), x.dtype),
    "flat": lambda x: x.reshape(-1),
    "one": lambda x: x.reshape(-1)[:1],
    "none": lambda x: x.reshape(-1)[:0],
    "outer": lambda x: x[None],
    "inner": lambda x: x[..., None],
    "first item": lambda x: x[0] if x.ndim and x.shape[0] else x,
    "swapped": lambda x: x.swapaxes(0, -1) if x.ndim else x,
    "ones": lambda x: x.reshape(-1)[:1].reshape((1,) * x.ndim) if x.size else x,
    "zeros": lambda x: np.zeros((0,) * x.ndim, x.dtype),
    "65 axes": lambda x: x.reshape(x.shape + (1,) * (64 - x.ndim)),
    **{f"axis {axis} of {n}": _resized(axis, lambda _, n=n: n) for axis in (0, 1, 2, -1) for n in (0, 1, 3)},
    **{f"axis {axis} doubled": _resized(axis, lambda old: 2 * old) for axis in (0, 1, 2, -1)},
    **{f"axis {axis} longer": _resized(axis, lambda old: old + 1) for axis in (0, 1, 2, -1)},
}
LAYOUTS: Final[dict[str, Callable[[Array], Any]]] = {
    "odd strides": _odd_strides,
    "columns": lambda x: np.asarray(x, order="F"),
    "big-endian": lambda x: x if x.dtype.kind in "bV" else x.astype(x.dtype.newbyteorder(">")),
    "unaligned": _unaligned,
    "read-only": _read_only,
    "backwards": _backwards,
}
OTHERS: Final[dict[str, Callable[[Array], Any]]] = {
    "list": lambda x: x.tolist(),
    "ragged": lambda x: [x.tolist(), [[1], 2]],
    "None": lambda x: None,
    "text": lambda x: "x",
    "number": lambda x: 1.5,
    "long number": lambda x: 10**30,
    "objects": lambda x: x.astype(object),
    "texts": lambda x: x.astype("U8"),
    "dates": lambda x: np.zeros(x.shape, "M8[s]"),
    "records": lambda x: np.zeros(x.shape, "i4,f4"),
    "scalar": lambda x: x.reshape(-1)[0] if x.size else x,
    "masked": lambda x: np.ma.masked_array(x, np.zeros(x.shape, bool)),
    "matrix": lambda x: np.matrix(x) if x.ndim == 2 else x,
}
CHANGES: Final[dict[str, Callable[[Array], Any]]] = {**VALUES, **TYPES, **SHAPES, **LAYOUTS, **OTHERS}
_KINDS: Final = (VALUES, VALUES, TYPES, SHAPES, SHAPES, LAYOUTS, OTHERS)
_ALL: Final = -1


def cases(samples: Sequence[Sample], seed: int) -> Iterator[list[Any]]:
    """Cases without end: [sample, form, [[which input or -1 for all, change], ...]]."""
    rng = random.Random(seed)
    counts = {sample.id: len(sample.sets[0].inputs) for sample in samples}
    known = [sample.id for sample in samples if counts[sample.id]]
    while known:
        sample_id = rng.choice(known)
        places = [_ALL, *range(counts[sample_id])]
        changes = [[rng.choice(places), rng.choice(list(rng.choice(_KINDS)))] for _ in range(rng.choice((1, 1, 2, 3)))]
        yield [sample_id, rng.choice(_OFTEN), changes]


def attempt(case: list[Any]) -> str:
    """Run a case on both backends; in a word, what came of it.

    Raises:
        DisagreementError: they do not say the same, or a layout in memory changed the answer.
        EngineError: it stands for an unexpected exception.
    """
    return _attempt(case, agreed)


def attempt_reference(case: list[Any]) -> str:
    """Run a case on the reference."""
    return _attempt(case, lambda graph, inputs: engine.Session(graph, backend="reference").run(inputs))


def _attempt(case: list[Any], run_graph: Callable[[engine.RuntimeGraph, list[Any]], list[Any]]) -> str:
    sample_id, form, changes = case
    try:
        graph = graph_of(sample_id, form)
        inputs = changed(_samples()[sample_id].sets[0].inputs, _summable(graph, changes))
        outputs = run_graph(graph, inputs)
        if all(name in LAYOUTS for _, name in changes) and not is_random(graph):
            _compare_with_plain(graph, sample_id, outputs)
    except engine.EngineError as error:
        told = refusal(error)
        if told.startswith("ExecutionError for"):
            raise
        return f"{told}: {error}"[:600]
    return f"result: {[output.shape for output in outputs]}"


def _summable(graph: engine.RuntimeGraph, changes: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The changes, but of what is added up no elements so large that the order decides whether a sum is finite."""
    if not has(graph, SUMS):
        return [list(change) for change in changes]
    return [[which, f"{name} summand" if name in ("all large", "one large") else name] for which, name in changes]


def _compare_with_plain(graph: engine.RuntimeGraph, sample_id: str, outputs: list[Any]) -> None:
    inputs = list(_samples()[sample_id].sets[0].inputs)
    plain = engine.Session(graph, backend="reference").run(inputs)
    for index, (mine, its) in enumerate(zip(outputs, plain, strict=True)):
        compare(f"output {index} of another layout", mine, its, rounding_of(inputs, graph))


def changed(inputs: Sequence[Array], changes: Sequence[Sequence[Any]]) -> list[Any]:
    """Inputs with changes made, in order; those that cannot be made of what is there by then are left out."""
    result: list[Any] = list(inputs)
    for which, name in changes:
        for place in range(len(result)) if which == _ALL else [which]:
            # numpy itself corrupts memory with matrices of three axes: nothing comes after a subclass.
            if type(result[place]) is np.ndarray and result[place].size <= _MOST_ELEMENTS:
                try:
                    with np.errstate(all="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        result[place] = CHANGES[name](result[place])
                except (ValueError, TypeError, OverflowError, RuntimeError, IndexError, AttributeError):
                    continue
    return result


def graph_of(sample_id: str, form: str) -> engine.RuntimeGraph:
    """Return the graph of a sample, built, with what a form says of its inputs.

    Raises:
        EngineError: it cannot be built.
    """
    graph = engine.RuntimeGraph.from_source(_graph(sample_id, form))
    graph.build()
    return graph


@cache
def _graph(sample_id: str, form: str) -> pnnx.Graph:
    source = _loaded(sample_id)
    fed = {name for op in source.operators if op.type == "pnnx.Input" for name in op.outputs}
    if form == "open":  # and nothing is said of what comes after them: it would be wrong
        ranks = {name: TensorSpec((None,) * spec.rank, spec.dtype) for name, spec in source.annotations.items()}
        return dataclasses.replace(source, annotations={name: spec for name, spec in ranks.items() if name in fed})
    return dataclasses.replace(source, annotations={}, untyped={}) if form == "bare" else source


@cache
def _loaded(sample_id: str) -> pnnx.Graph:
    with tempfile.TemporaryDirectory() as folder:
        return pnnx.read(*_samples()[sample_id].extract(Path(folder)))


@cache
def _samples() -> dict[str, Sample]:
    return {sample.id: sample for sample in all_samples()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Try cases for as long as told; print the findings and count the outcomes."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (0)")
    parser.add_argument("--only", default="", help="samples that have this operator type")
    parser.add_argument("--backend", choices=FRONT_ENDS, default="compiled", help="compiled: both, and held together")
    parser.add_argument("--show", default="", help="print outcomes that begin so")
    options = parser.parse_args(arguments)
    samples = [sample for sample in _samples().values() if f"{options.only} " in sample.param or not options.only]
    end = time.monotonic() + options.seconds
    in_time = takewhile(lambda _: time.monotonic() < end, cases(samples, options.seed))
    return report(run(FRONT_ENDS[options.backend], in_time, LIMITS), show=options.show)


if __name__ == "__main__":
    sys.exit(main())
