"""Translators of string operators and related operators of ``ai.onnx.ml``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.layers.onnx.operands.dtypes import NUMBERS
from engine.layers.operands.conversion import STRING
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of

_ML = "ai.onnx.ml"
# Maximum rows of a lookup table for integers.
_MOST_ROWS = 1 << 16


@translates("StringConcat", since=20)
@translates("StringNormalizer", since=10)
@translates("TfIdfVectorizer", since=9)
@translates("Tokenizer", domain=MICROSOFT)
def as_it_is(node: Node) -> list[Value]:
    """Keep ONNX's layer."""
    return node.same()


@translates("Binarizer", domain=_ML)
def binarizer(node: Node) -> Value:
    """Compare with the threshold."""
    x = node.input(0)
    return in_dtype_of(node, node.make("torch.gt", x, other=node.real("threshold", 0.0)), x)


@translates("ArrayFeatureExtractor", domain=_ML)
def array_feature_extractor(node: Node) -> Value:
    """Translate to torch.index_select of columns."""
    x, places = node.input(0), node.input(1)
    x = x if (x.rank or 0) > 1 else node.make("aten::atleast_2d", x)
    places = places if places.rank == 1 else node.make("torch.flatten", places, start_dim=0, end_dim=-1)
    return node.make("torch.index_select", x, places, dim=-1)


@translates("StringSplit", since=20)
def split(node: Node) -> list[Value]:
    """Keep ONNX's layer with both results, used or not."""
    names = [*node.outputs, "", ""][:2]
    params = {key: node.attributes[key] for key in ("delimiter", "maxsplit") if key in node.attributes}
    return node.builder.add("StringSplit", node.name, [node.input(0)], outputs=names, params=params)


@translates("LabelEncoder", domain=_ML)
def first_label_encoder(node: Node) -> Value | None:
    """Translate to LabelEncoder, from strings to their indices in the list or from indices to strings."""
    texts, dtype = node.attributes.get("classes_strings", ()), node.dtype()
    places = tuple(range(len(texts)))
    if dtype is None:
        return None
    if dtype == STRING:
        params = {"keys": texts, "values": places, "default": node.number("default_int64", -1)}
    else:
        params = {"keys": places, "values": texts, "default": node.text("default_string", "_Unused")}
    return node.make("LabelEncoder", node.input(0), **params)


@translates("LabelEncoder", since=2, domain=_ML)
def label_encoder(node: Node) -> Value | None:
    """Translate to LabelEncoder, or to a table lookup for integers."""
    keys = _table(node, "keys")
    values = _table(node, "values")
    if keys is None or values is None:
        return None
    first = values[0] if values else 0
    default: object = "_Unused" if isinstance(first, str) else -0.0 if isinstance(first, float) else -1
    for kind in ("string", "int64", "float"):
        if f"default_{kind}" in node.attributes and isinstance(default, (str, int, float)):
            given = node.attributes[f"default_{kind}"]
            default = given if type(given) is type(first) else default
    array = node.attributes.get("default_tensor")
    if array is not None and array.size == 1:
        default = array.reshape(()).item()
    tensor = node.attributes.get("values_tensor")
    dtype = 0 if tensor is None else NUMBERS[tensor.dtype]
    found = None if dtype else _looked_up(node, keys, values, default)
    if found is not None:
        return found
    params = {"keys": keys, "values": values, "default": default, "dtype": dtype}
    return node.make("LabelEncoder", node.input(0), **params)  # type: ignore[arg-type]


def _table(node: Node, name: str) -> tuple[object, ...] | None:
    for kind in ("strings", "int64s", "floats"):
        if f"{name}_{kind}" in node.attributes:
            found = node.attributes[f"{name}_{kind}"]
            return tuple(found) if isinstance(found, tuple) else None
    array = node.attributes.get(f"{name}_tensor")
    return None if array is None else tuple(array.reshape(-1).tolist())


def _looked_up(node: Node, keys: Sequence[object], values: Sequence[object], default: object) -> Value | None:
    """Look up integer keys of a small range in a table; None for other keys."""
    x = node.input(0)
    kind = {int: np.int64, float: np.float32}.get(type(default))
    whole = [each for each in keys if type(each) is int]
    if x.dtype != np.int64 or kind is None or not keys or len(whole) < len(keys) or len(set(whole)) < len(whole):
        return None
    if any(type(each) is not type(default) for each in values) or len(values) != len(keys):
        return None
    first, last = min(whole) - 1, max(whole) + 1
    if last - first > _MOST_ROWS or max(abs(first), abs(last)) >= 1 << 31:
        return None
    table = np.full(last - first + 1, default, kind)
    table[np.array(whole) - first] = values
    place = node.make("torch.clamp", x, min=first, max=last)
    place = node.expression(f"sub(@0,{first})", place) if first else place
    return node.make("aten::take", node.constant(table), place)
