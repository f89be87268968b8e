"""Random ONNX graphs of opset 7 and later, whose answers are compared with those of onnxruntime.

A case is a seed: a graph of one to twelve nodes, with control flow, quantised operators and dynamic sizes. Each node is
first run alone by onnxruntime, and dropped if that refuses it. Both the reference and machine code must answer as
onnxruntime does; an answer that depends on the last bits of the inputs is not compared.

    python -m tests.fuzz.onnx_graphs --seconds 600 --seed 1 [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import onnx
from tests.fuzz.onnx_recipes import RECIPES, Call, Draw

ort = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)

FIRST: Final = 7
NEWEST: Final = 23
_MICROSOFT: Final = "com.microsoft"
_MOST_ELEMENTS: Final = 20_000
_TO_HALF: Final = re.compile(r"to: int = 1[06]\b")
# What neither engine need compute: results that are random, or of no kernel in machine code.
_NOT_COMPILED: Final = (
    "no operator of the graph has a kernel",
    "machine code takes only tensors",
    "exceeds the memory",
)


@dataclass
class Draft:
    """Graph under construction, whose values are known.

    Args:
        values: arrays by name, those of the surrounding graphs included.
    """

    draw: Draw
    opset: int
    values: dict[str, Any] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""

    def name(self, stem: str) -> str:
        """Return a new name."""
        return f"{self.prefix}{stem}{len(self.nodes)}_{len(self.weights)}_{len(self.values)}"

    def grow(self) -> None:
        """Try to add a random node."""
        recipe = self.draw.choice(RECIPES)
        with suppress(ValueError, IndexError):  # a value of the wrong shape for the recipe
            call = recipe(self)
            if call is not None:
                self.add(call)

    def add(self, call: Call) -> list[str]:
        """Add a node if onnxruntime runs it alone and its results are small; return the names of its results."""
        names, weights = [], {}
        for k, each in enumerate(call.inputs):
            if isinstance(each, np.ndarray | np.generic):
                weights[f"{self.name('w')}_{k}"] = np.asarray(each)
                names.append([*weights][-1])
            else:
                names.append(each)
        outputs = [self.name(f"v{k}_") for k in range(call.outputs)]
        made = onnx.helper.make_node(call.type, names, outputs, domain=call.domain, **call.attributes)
        given = {name: self.values[name] for name in [*names, *call.captured] if name and name not in weights}
        proto = self.model([made], given, outputs, weights)
        try:
            results = run_rival(proto, given)
        except Exception:  # the node is not valid, or onnxruntime has no kernel for it
            return []
        if not all(_is_plain(each) for each in results):
            return []
        self.nodes.append(made)
        self.weights |= weights
        self.values |= dict(zip(outputs, results, strict=True))
        return outputs

    def model(self, nodes: list[Any], given: dict[str, Any], outputs: list[str], weights: dict[str, Any]) -> Any:
        """Return a model of nodes."""
        helper = onnx.helper
        tensors = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
        ports = [_port(name, value.dtype, value.shape) for name, value in given.items()]
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(nodes, "drawn", ports, made, tensors)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=min(10, 3 + max(0, self.opset - 7)))


@dataclass(frozen=True)
class Case:
    """Model with inputs; two sets of them where its first dimension is dynamic."""

    model: Any
    feeds: list[dict[str, Any]]

    @property
    def types(self) -> list[str]:
        """Return the operators."""
        return [each.op_type for each in self.model.graph.node]


def case_of(seed: int) -> Case | None:
    """Return the case of a seed; None where no node was accepted."""
    draw = Draw(seed)
    draft = Draft(draw, draw.opset(FIRST, NEWEST))
    count = draw.integer(1, 3)
    shared = draw.shape(draw.integer(1, 4))
    for k in range(count):
        shape = shared if draw.chance(0.6) else draw.shape(draw.integer(0, 4))
        draft.values[f"x{k}"] = draw.array(shape, draw.dtype())
    feeds = dict(draft.values)
    for _ in range(draw.integer(2, 16)):
        draft.grow()
    if not draft.nodes:
        return None
    used = {name for each in draft.nodes for name in each.input}
    last = [name for each in draft.nodes for name in each.output if name not in used or draw.chance(0.1)]
    captured = {name for each in draft.nodes for name in _captured(each)}
    feeds = {name: value for name, value in feeds.items() if name in used | captured}
    model = draft.model(draft.nodes, feeds, last, draft.weights)
    sets = [feeds]
    if draw.chance(0.5):
        sets = _make_dynamic(model, feeds, draw)
    return Case(model, sets)


def _make_dynamic(model: Any, feeds: dict[str, Any], draw: Draw) -> list[dict[str, Any]]:
    """Name sizes of the inputs; return their values and others with a larger first dimension."""
    for port in model.graph.input:
        for k, dim in enumerate(port.type.tensor_type.shape.dim):
            if k == 0 or draw.chance(0.3):
                size = dim.dim_value
                dim.Clear()
                dim.dim_param = f"{'m' if k else 'n'}{size}" if draw.chance(0.7) else f"{port.name}_{k}"
    larger = {
        name: np.concatenate([value, value[:1]]) if value.ndim and len(value) else value
        for name, value in feeds.items()
    }
    return [feeds, larger]


def _captured(made: Any) -> Iterator[str]:
    for attribute in made.attribute:
        for each in attribute.g.node:
            yield from each.input
            yield from _captured(each)
        yield from (port.name for port in attribute.g.output)


def _port(name: str, dtype: Any, shape: Any) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _is_plain(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub" or not 0 < value.size <= _MOST_ELEMENTS:
        return False
    return value.dtype.kind != "f" or bool((np.abs(value.astype(np.float64)) < 1e6).all())


def run_rival(proto: Any, feeds: dict[str, Any], *, optimised: bool = False) -> list[Any]:
    """Return onnxruntime's answer."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def expected_of(case: Case, feeds: dict[str, Any]) -> list[Any] | None:
    """Return onnxruntime's answer, None for each result that depends on the last bits; None if it refuses."""
    try:
        found = run_rival(case.model, feeds)
        others = [run_rival(case.model, feeds, optimised=True)]
        for seed in range(3):
            draw = Draw(seed)
            others.append(run_rival(case.model, {name: draw.moved(each) for name, each in feeds.items()}))
    except Exception:  # sizes that do not fit, or a graph that its optimiser breaks
        return None
    error = error_of(case.model)
    return [
        None if _is_tied(each, error) or any(difference(other[k], each, error) for other in others) else each
        for k, each in enumerate(found)
    ]


def _is_tied(found: Any, error: float) -> bool:
    """Return whether integers may be places of extremes that are equal in half precision."""
    return found.dtype == np.int64 and error > 1e-3


def error_of(model: Any) -> float:
    """Return the relative error that the least precise tensor of a model allows."""
    text = onnx.printer.to_text(model)
    return 2e-2 if "FLOAT16" in text.upper() or _TO_HALF.search(text) else 1e-4


def difference(found: Any, wanted: Any, largest: float) -> str | None:
    """Return how an answer differs from the expected one; None if it does not.

    Bytes may be a step apart: quantised values between two steps are rounded either way.
    """
    if not isinstance(found, np.ndarray) or found.dtype != wanted.dtype or found.shape != wanted.shape:
        kind = f"{getattr(found, 'dtype', type(found))} {getattr(found, 'shape', '')}"
        return f"{kind}, expected {wanted.dtype} {wanted.shape}"
    if found.dtype.kind != "f":
        steps = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        allowed = 1 if found.dtype.itemsize == 1 and found.dtype.kind in "iu" else 0
        wrong = np.flatnonzero(steps.ravel() > allowed)[:5]
        return f"{found.ravel()[wrong]}, expected {wanted.ravel()[wrong]} at {wrong}" if len(wrong) else None
    scale = float(np.nanmax(np.abs(wanted[np.isfinite(wanted)]), initial=1.0)) if wanted.size else 1.0
    if np.allclose(found, wanted, rtol=largest * 10, atol=largest * scale, equal_nan=True):
        return None
    worst = np.argsort(-np.abs(found - wanted).ravel())[:5]
    return f"{found.ravel()[worst]}, expected {wanted.ravel()[worst]} at {worst}"


class _Defects(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "failed" in record.getMessage():
            self.messages.append(record.getMessage())


def problems_of(case: Case) -> list[str]:
    """Return what is wrong with our answers."""
    wanted = [expected_of(case, feeds) for feeds in case.feeds]
    if all(each is None for each in wanted):
        return []
    found: list[str] = []
    defects = _Defects()
    logger = logging.getLogger("pnnx_serve")
    logger.addHandler(defects)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(case.model.SerializeToString())
        try:
            graph = engine.load(path)
        except Exception as error:  # whatever it is, it is a finding
            return [f"load: {type(error).__name__}: {error}"]
        for backend in ("reference", "compiled"):
            session = engine.Session(graph, backend=backend, threads=1, cache=None)  # type: ignore[arg-type]
            for number, (feeds, answer) in enumerate(zip(case.feeds, wanted, strict=True)):
                if answer is not None:
                    compared = _compared(session, feeds, answer, error_of(case.model))
                    found += [f"{backend}, set {number}: {each}" for each in compared]
            session.close()
    logger.removeHandler(defects)
    return found + defects.messages


def _compared(session: engine.Session, feeds: dict[str, Any], wanted: list[Any], error: float) -> Iterator[str]:
    try:
        answer = session.run(feeds)
    except engine.CompileError as exc:
        if not any(each in str(exc) for each in _NOT_COMPILED):
            yield f"{type(exc).__name__}: {exc}"
        return
    except Exception as exc:  # whatever it is, it is a finding
        yield f"{type(exc).__name__}: {exc}"
        return
    for k, (mine, its) in enumerate(zip(answer, wanted, strict=True)):
        if its is not None and (problem := difference(mine, its, error)):
            yield f"output {k}: {problem}"


def main() -> int:
    """The command line; status 1 when something was found."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    parser.add_argument("--keep", type=Path, help="folder for the files of findings")
    options = parser.parse_args()
    end, seed, count, nodes, bad = time.monotonic() + options.seconds, options.seed * 1_000_000, 0, 0, 0
    while time.monotonic() < end:
        case = case_of(seed)
        if case is not None:
            count, nodes = count + 1, nodes + len(case.types)
            if problems := problems_of(case):
                bad += 1
                opset = case.model.opset_import[0].version
                print(
                    f"{seed} opset {opset} {case.types}",
                    *[f"    {each[:400]}" for each in problems[:3]],
                    sep="\n",
                    flush=True,
                )
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{seed}.onnx").write_bytes(case.model.SerializeToString())
        seed += 1
    print(f"{count} graphs of {nodes} nodes, {bad} with findings")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
