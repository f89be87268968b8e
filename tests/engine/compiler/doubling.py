"""Graphs of float32 as graphs of float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine import RuntimeGraph, TensorSpec
from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import Array

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def doubled(source: Graph) -> RuntimeGraph:
    """Return a graph with float64 in place of float32, built."""
    operators = [_doubled(each) for each in source.operators]
    annotations = {
        name: TensorSpec(spec.shape, F64) if spec.dtype == F32 else spec for name, spec in source.annotations.items()
    }
    graph = RuntimeGraph.from_source(replace(source, operators=operators, annotations=annotations))
    graph.build()
    return graph


def doubles(arrays: list[Array]) -> list[Array]:
    """Inputs of such a graph."""
    return [each.astype(F64) if each.dtype == F32 else each for each in arrays]


def _doubled(op: Operator) -> Operator:
    attributes = {
        name: Attribute(each.shape, F64, np.asarray(each.data, F64).reshape(each.shape)) if each.dtype == F32 else each
        for name, each in op.attributes.items()
    }
    return replace(op, attributes=attributes)
