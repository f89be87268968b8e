"""Stages of a graph: operators whose sizes depend on values run as a graph of their own, once those sizes are known.

A boolean mask, ``NonZero`` or a range up to a computed length gives a tensor whose size inference cannot know. All
operators behind it move into the body of one ``Stage`` operator. That body is a graph with dynamic sizes: its
programs have symbolic sizes, which are bound when the first stage has run. A body may have stages again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine import pnnx
from engine.errors import EngineError
from engine.graph import RuntimeGraph, surgery
from engine.graph.symbolic_inputs import symbolic_specs
from engine.ir.dims import hint, is_symbolic
from engine.tensor import TensorSpec, is_known, known_value

STAGE: Final = "engine.Stage"
# With fewer operators behind them the reference layers take no longer than a call of a body: 20 us.
_MIN_OPERATORS: Final = 4
# A dynamic size that nothing is known of, for an inference that only asks which sizes are unknown.
_ANY_SIZE: Final = 64


def staged(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> RuntimeGraph:
    """Move all operators behind sizes that values decide into one operator; return the graph itself without such.

    Args:
        specs: of the inputs, for an inference; dynamic dimensions may be None.
    """
    if any(port.spec is None for port in graph.inputs):
        return graph
    try:
        known = graph.infer(_with_symbolic_sizes(graph, specs))
    except EngineError:  # the program for these shapes will say so
        return graph
    stage = _Stage.find(graph.source, known)
    return graph if stage is None else graph.rebuilt(stage.split(graph.source))


def _with_symbolic_sizes(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return the specs of the inputs with symbolic sizes where a dimension is dynamic."""
    hints = [
        replace(spec, shape=tuple(_ANY_SIZE if dim is None else hint(dim) for dim in spec.shape)) for spec in specs
    ]
    return symbolic_specs(graph.inputs, hints)[1]


@dataclass(frozen=True, slots=True)
class _Stage:
    """Operators that run as a graph of their own.

    Args:
        moved: names of operators that leave the graph; the first one gives the stage its name.
        inputs: operands that the body takes, with what is known of them.
        outputs: operands that the graph returns and the body makes.
    """

    moved: Mapping[str, pnnx.Operator]
    inputs: Mapping[str, TensorSpec]
    outputs: tuple[str, ...]

    @classmethod
    def find(cls, source: pnnx.Graph, known: Mapping[str, object]) -> _Stage | None:
        """Return the stage behind all operands whose sizes are unknown; None where it would not pay."""
        makers = {name: op for op in source.operators for name in op.outputs}
        late: set[str] = set()
        moved: dict[str, pnnx.Operator] = {}
        for op in source.operators:
            if op.type == "pnnx.Output":
                continue
            if late.intersection(op.inputs):
                moved[op.name] = op
                late.update(op.outputs)
            else:
                late.update(name for name in op.outputs if _has_unknown_size(known.get(name)))
        if len(moved) < _MIN_OPERATORS:
            return None
        inside = moved | _copied(moved, makers, known)
        used = dict.fromkeys(name for op in inside.values() for name in op.inputs)
        outside = [name for name in used if makers[name].name not in inside]
        specs = {name: spec for name in outside if (spec := _port_spec(known.get(name))) is not None}
        if len(specs) < len(outside):
            return None
        returned = dict.fromkeys(op.inputs[0] for op in source.operators if op.type == "pnnx.Output" and op.inputs)
        outputs = tuple(name for name in returned if makers[name].name in moved)
        return cls(moved, specs, outputs) if outputs else None

    def split(self, source: pnnx.Graph) -> pnnx.Graph:
        """Return the graph with the stage in the place of its operators."""
        bare = replace(source, annotations={}, size_names={})  # what the file says of sizes holds for its example only
        body = surgery.extract(bare, tuple(self.inputs), self.outputs, self.inputs)
        # Named like its first operator, a stage is found in profiles of the graph as it was given.
        name = next(iter(self.moved))
        stage = pnnx.Operator(STAGE, name, tuple(self.inputs), self.outputs, subgraphs={"body": body})
        return surgery.outline(source, self.moved, stage)


def _copied(
    moved: Mapping[str, pnnx.Operator], makers: Mapping[str, pnnx.Operator], known: Mapping[str, object]
) -> dict[str, pnnx.Operator]:
    """Return the operators whose values inference follows, by name: constants, and what is computed from sizes.

    The body computes them from the sizes of its own inputs: as inputs they would be values that decide sizes again.
    """
    found: dict[str, pnnx.Operator] = {}
    waiting = [name for op in moved.values() for name in op.inputs]
    while waiting:
        op = makers[waiting.pop()]
        if op.name in moved or op.name in found or op.type == "pnnx.Input":
            continue
        if not op.inputs or all(_has_value(known.get(name)) for name in op.outputs):
            found[op.name] = op
            waiting.extend(op.inputs)
    return found


def _has_unknown_size(value: object) -> bool:
    return isinstance(value, TensorSpec) and None in value.shape


def _has_value(value: object) -> bool:
    """Return whether inference knows the elements, or the sizes that they are computed from."""
    return value is not None and is_known(known_value(value))


def _port_spec(value: object) -> TensorSpec | None:
    """Return the spec of an input of the body, with symbolic sizes as dynamic; None if it is not a tensor."""
    if not isinstance(value, TensorSpec) or value.dtype.hasobject:
        return None
    return TensorSpec(tuple(None if dim is None or is_symbolic(dim) else dim for dim in value.shape), value.dtype)
