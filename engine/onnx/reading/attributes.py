"""Attributes of an operator as Python values."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, quoted
from engine.onnx.reading.tensors import Weights

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS, _TENSORS = 1, 2, 3, 4, 5, 6, 7, 8, 9
_SPARSE, _TYPE = 11, 13
_SHORT = 256


def attribute_value(proto: Any, weights: Weights) -> Any:
    """Numbers and texts, tuples of them, an array for a tensor, the message itself for a graph.

    Raises:
        ParameterError: of a kind that no operator of the engine takes.
        WeightsError: a tensor that contradicts itself.
    """
    kind = proto.type or _guessed(proto)
    if kind in (_FLOAT, _INT, _STRING):
        return number_or_text(proto, kind)
    if kind == _TENSOR:
        return weights.array(proto.t, proto.name)
    if kind == _GRAPH:
        return proto.g
    if kind == _FLOATS:
        # The coefficients of a model are taken as they are.
        return tuple(map(_float, proto.floats)) if len(proto.floats) <= _SHORT else tuple(proto.floats)
    if kind == _INTS:
        return tuple(proto.ints)
    if kind == _STRINGS:
        return tuple(each.decode("utf-8", "replace") for each in proto.strings)
    if kind == _TENSORS:
        return [weights.array(each, proto.name) for each in proto.tensors]
    if kind == _SPARSE:
        return weights.dense(proto.sparse_tensor)
    if kind == _TYPE:
        return None
    raise ParameterError(f"attribute {quoted(proto.name)} is of an unknown kind", found=kind)


def number_or_text(proto: Any, kind: int | None = None) -> float | int | str:
    """Return an attribute that is one float, integer or text."""
    kind = kind or proto.type
    if kind == _FLOAT:
        return _float(proto.f)
    return int(proto.i) if kind == _INT else str(proto.s.decode("utf-8", "replace"))


def _guessed(proto: Any) -> int:
    """The kind of an attribute that does not say it, as the oldest files do not."""
    for kind, name in ((_TENSOR, "t"), (_GRAPH, "g"), (_FLOAT, "f"), (_INT, "i"), (_STRING, "s")):
        if proto.HasField(name):
            return kind
    for kind, name in ((_FLOATS, "floats"), (_INTS, "ints"), (_STRINGS, "strings"), (_TENSORS, "tensors")):
        if len(getattr(proto, name)):
            return kind
    return _INTS


def _float(value: float) -> float:
    """A float32 as the shortest number that is it: 0.01 rather than 0.009999999776482582."""
    return float(str(np.float32(value)))
