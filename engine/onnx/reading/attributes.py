"""Attributes of an operator as Python values, and class labels from the metadata of the file."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, quoted
from engine.onnx.reading.tensors import Weights

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS, _TENSORS = 1, 2, 3, 4, 5, 6, 7, 8, 9
_SPARSE, _TYPE = 11, 13
_SHORT = 256
KEYS: Final = ("labels", "names", "classes", "class_names")
# Dictionary of a text recogniser, one character a line, as PaddleOCR and RapidOCR write it.
CHARACTERS: Final = "character"
MOST_LABELS: Final = 1 << 16
_LONGEST: Final = 1 << 20
_LONGEST_LABEL: Final = 200
# {0: 'person', 1: "driver's seat"}: a dictionary as Python prints it, which is not JSON.
_PAIR: Final = re.compile(r"""\s*(\d{1,6})\s*:\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*(?:,|$)""")


def attribute_value(proto: Any, weights: Weights) -> Any:
    """Return numbers and texts, tuples of them, an array for a tensor, or the message itself for a graph.

    Raises:
        ParameterError: the kind of the attribute is not supported.
        WeightsError: the tensor contradicts itself.
    """
    kind = proto.type or _guessed(proto)
    if kind in (_FLOAT, _INT, _STRING):
        return number_or_text(proto, kind)
    if kind == _TENSOR:
        return weights.array(proto.t, proto.name)
    if kind == _GRAPH:
        return proto.g
    if kind == _FLOATS:
        # Coefficients of a model keep all their digits.
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
    """Return the kind of an attribute that does not state it, as in the oldest files."""
    for kind, name in ((_TENSOR, "t"), (_GRAPH, "g"), (_FLOAT, "f"), (_INT, "i"), (_STRING, "s")):
        if proto.HasField(name):
            return kind
    for kind, name in ((_FLOATS, "floats"), (_INTS, "ints"), (_STRINGS, "strings"), (_TENSORS, "tensors")):
        if len(getattr(proto, name)):
            return kind
    return _INTS


def _float(value: float) -> float:
    """Return a float32 as the shortest number that rounds to it: 0.01 rather than 0.009999999776482582."""
    return float(str(np.float32(value)))


def labels_of(properties: Any) -> tuple[str, ...]:
    """Return labels in the order of the classes, from the first property that has any; none if none can be parsed.

    Accepted are a list of texts as JSON, a dictionary from numbers to texts as JSON or Python, and one text a line; or
    the characters of a text recogniser, one a line, of which one may be a space.
    """
    known = (*KEYS, CHARACTERS)
    found = {each.key: each.value for each in properties if each.key in known and len(each.value) <= _LONGEST}
    for key in KEYS:
        labels = _labels(found[key].strip()) if key in found else None
        if labels and len(labels) <= MOST_LABELS and all(map(_is_label, labels)):
            return tuple(labels)
    characters = found.get(CHARACTERS, "").replace("\r\n", "\n").removesuffix("\n").split("\n")
    return tuple(characters) if len(characters) <= MOST_LABELS and all(map(_is_character, characters)) else ()


def _labels(text: str) -> list[Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = _dictionary(text) if text.startswith("{") else [line.strip() for line in text.split("\n")]
    if isinstance(value, dict):
        return _in_order(value)
    return value if isinstance(value, list) and len(value) > 1 else None


def _dictionary(text: str) -> dict[str, str]:
    pairs, place = {}, 1
    while text[place:-1].strip() if place == 1 else place < len(text) - 1:
        match = _PAIR.match(text, place, len(text) - 1)
        if match is None:
            return {}
        pairs[match[1]] = match[2] if match[2] is not None else match[3]
        place = match.end()
    return pairs if text.endswith("}") else {}


def _in_order(pairs: dict[Any, Any]) -> list[Any] | None:
    """Return the texts if they are numbered from 0 without a gap."""
    keys = [str(k) for k in range(len(pairs))]
    return [pairs[key] for key in keys] if set(keys) == set(pairs) else None


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_LABEL and value.isprintable()


def _is_character(value: str) -> bool:
    return value.isspace() or _is_label(value)
