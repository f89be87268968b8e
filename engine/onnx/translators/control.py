"""Translators of branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.onnx.control.control import common_spec
from engine.layers.operands.axes import checked_axis
from engine.onnx.translation.node import Node, Part
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.bags import embedding_bags
from engine.onnx.translators.distances import distances
from engine.onnx.translators.sequence_bags import sequence_bags
from engine.tensor import UNKNOWN, TensorSpec

_LONGEST = 300
_TRUTH = TensorSpec((), np.dtype(np.bool_))
_COUNT = TensorSpec((), np.dtype(np.int64))


@translates("If")
def branch(node: Node) -> list[Value]:
    """Inline the branch of a constant condition; else translate to onnx.If with both branches."""
    condition = node.input(0)
    if condition.constant is not None and condition.constant.size == 1:
        return node.inline(graph_of(node, "then_branch" if condition.constant.any() else "else_branch"))
    parts: dict[str, Part] = {}
    refused: dict[str, str] = {}
    for name in ("then_branch", "else_branch"):
        try:
            parts[name] = node.subgraph(graph_of(node, name), ())
        except ShapeError as error:  # the branch is for other shapes
            refused[f"{name}_refused"] = str(error)[:_LONGEST]
            last = error
    if not parts:
        raise last
    results = [part.results for part in parts.values()]
    known = [common_spec(a, b) for a, b in zip(*results, strict=False)] if len(results) > 1 else []
    return node.builder.add(
        "onnx.If",
        node.name,
        [condition, *(value for part in parts.values() for value in part.captured)],
        outputs=list(node.outputs),
        params=refused,
        subgraphs={name: part.graph for name, part in parts.items()},
        results=_padded(known, node),
        declared=node.declared,
    )


@translates("Loop")
def loop(node: Node) -> list[Value]:
    """Translate to onnx.Loop, or to EmbeddingBags if the loop computes them."""
    count, condition = node.optional(0), node.optional(1)
    states = [node.input(k) for k in range(2, len(node.inputs))]
    proto = graph_of(node, "body")
    body = node.subgraph(proto, [_COUNT, _TRUTH, *(_open(each) for each in states)])
    bags = None if states else embedding_bags(node, count, condition, body)
    if bags is not None:
        return [bags]
    operands = [value for value in (count, condition) if value is not None]
    known = [_same_kind(state, after) for state, after in zip(states, body.results[1:], strict=False)]
    known += [_stacked(each) for each in body.results[1 + len(states) :]]
    return node.builder.add(
        "onnx.Loop",
        node.name,
        [*operands, *states, *body.captured],
        outputs=list(node.outputs),
        params={"states": len(states), "has_count": count is not None, "has_condition": condition is not None},
        subgraphs={"body": body.graph},
        results=_padded(known, node),
        declared=node.declared,
    )


@translates("Scan", since=8)
def batch_scan(node: Node) -> list[Value]:
    """Translate to onnx.BatchScan, the batched Scan of operator set 8."""
    lengths, values = node.optional(0), [node.input(k) for k in range(1, len(node.inputs))]
    scanned = node.number("num_scan_inputs", 0)
    count = len(values) - scanned
    if not 0 <= count < len(values):
        raise ParameterError("num_scan_inputs does not fit", found=scanned, expected=f"1 to {len(values)}")
    slices = [_slice(each, 0) for each in values]
    slices[count:] = [_without(each) for each in slices[count:]]
    dynamic = [TensorSpec((None,) * each.rank, each.dtype) if isinstance(each, TensorSpec) else each for each in slices]
    body = node.subgraph(graph_of(node, "body"), dynamic)
    given = [] if lengths is None else [lengths]
    directions = node.numbers("directions")
    return node.builder.add(
        "onnx.BatchScan",
        node.name,
        [*given, *values, *body.captured],
        outputs=list(node.outputs),
        params={"states": count, "inputs": scanned, "input_directions": directions, "has_lengths": lengths is not None},
        subgraphs={"body": body.graph},
        results=_padded([], node),
        declared=node.declared,
    )


def _without(spec: object) -> object:
    """Return a spec without its first axis."""
    return TensorSpec(spec.shape[1:], spec.dtype) if isinstance(spec, TensorSpec) and spec.shape else UNKNOWN


@translates("Scan", since=9)
def scan(node: Node) -> list[Value]:
    """Translate to onnx.Scan, or to distances of rows if the scan computes them."""
    proto, scanned = graph_of(node, "body"), node.number("num_scan_inputs", 0)
    values = [node.input(k) for k in range(len(node.inputs))]
    count = len(values) - scanned
    if not 0 <= count <= len(values):
        raise ParameterError("num_scan_inputs does not fit", found=scanned, expected=f"at most {len(values)}")
    axes = node.numbers("scan_input_axes") or (0,) * scanned
    found = distances(node, proto, values, count)
    if found is not None:
        return found
    slices = [_slice(value, axis) for value, axis in zip(values[count:], axes, strict=False)]
    body = node.subgraph(proto, [*(_open(each) for each in values[:count]), *slices])
    results = [_same_kind(state, after) for state, after in zip(values[:count], body.results, strict=False)]
    stacked = body.results[count:]
    places = node.numbers("scan_output_axes") or (0,) * len(stacked)
    results += [_stacked(each, place) for each, place in zip(stacked, places, strict=False)]
    names = ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions")
    return node.builder.add(
        "onnx.Scan",
        node.name,
        [*values, *body.captured],
        outputs=list(node.outputs),
        params={"states": count, "inputs": scanned, **{name[5:]: node.numbers(name) for name in names}},
        subgraphs={"body": body.graph},
        results=_padded(results, node),
        declared=node.declared,
    )


@translates("SequenceMap", since=17)
def sequence_map(node: Node) -> list[Value]:
    """Translate to onnx.SequenceMap."""
    values = [node.input(k) for k in range(len(node.inputs))]
    proto = graph_of(node, "body")
    body = node.subgraph(proto, [value.tensor or UNKNOWN for value in values])
    return node.builder.add(
        "onnx.SequenceMap",
        node.name,
        [*values, *body.captured],
        outputs=list(node.outputs),
        params={"inputs": len(values)},
        subgraphs={"body": body.graph},
        results=[UNKNOWN] * len(node.outputs),
    )


def graph_of(node: Node, name: str) -> Any:
    """Return an attribute that is a graph.

    Raises:
        ParameterError: it is missing or not a graph.
    """
    proto = node.attributes.get(name)
    if proto is None or not hasattr(proto, "node"):
        raise ParameterError(f"attribute '{name}' is no graph", found=type(proto).__name__)
    return proto


def _padded(known: Sequence[object], node: Node) -> list[object]:
    """Return the spec of each result: the inferred one, else the one declared in the file."""
    rest = [*known, *(UNKNOWN for _ in node.outputs)][: len(node.outputs)]
    notes = [*node.declared, *(None for _ in rest)]
    return [note if each is UNKNOWN and note is not None else each for each, note in zip(rest, notes, strict=False)]


def _open(value: Value) -> object:
    """Return the spec of a state for any iteration: same rank and dtype, all sizes unknown."""
    spec = value.tensor
    return UNKNOWN if spec is None else TensorSpec((None,) * spec.rank, spec.dtype)


def _same_kind(state: Value, after: object) -> object:
    known = common_spec(_open(state), after)
    return known if known is not UNKNOWN else UNKNOWN


def _stacked(item: object, axis: int = 0) -> object:
    if not isinstance(item, TensorSpec):
        return UNKNOWN
    place = checked_axis(axis, item.rank + 1)
    return TensorSpec((*item.shape[:place], None, *item.shape[place:]), item.dtype)


def _slice(value: Value, axis: int) -> object:
    spec = value.tensor
    if spec is None or not -spec.rank <= axis < spec.rank:
        return UNKNOWN
    shape = list(spec.shape)
    del shape[axis]
    return TensorSpec(tuple(shape), spec.dtype)


@translates("ConcatFromSequence", since=11)
def concat_from_sequence(node: Node) -> list[Value]:
    """Keep ONNX's layer, or translate to EmbeddingBags if a loop computed the sequence."""
    is_joined = node.number("axis", 0) == 0 and not node.number("new_axis", 0)
    bags = sequence_bags(node, node.input(0)) if is_joined else None
    return node.same() if bags is None else [bags]
