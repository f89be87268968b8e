"""Attention that an exporter spelt out: softmax(q * k^T * scale + mask) * v, as one operator."""

from __future__ import annotations

import math
import re
from typing import Final, Protocol

import numpy as np

from engine.pnnx.graph import Attribute, Operator, Parameter
from engine.tensor import Array, TensorSpec

_SCALED: Final = re.compile(r"(mul|div)\(@0,([0-9.eE+-]+)\)")
_CLOSE: Final = 1e-6


class Graph(Protocol):
    """What is asked of the graph around."""

    def maker(self, name: str, type: str) -> Operator | None: ...
    def spec(self, name: str) -> TensorSpec | None: ...
    def stored(self, name: str) -> Attribute | None: ...


def attention(graph: Graph, last: Operator) -> tuple[Operator, list[Operator]] | None:
    """The operator that stands for all that ends in a product, and those it stands for; None where it is no attention.

    Masks are taken in where they are stored and leave every row something: of a row that is masked out as a whole the
    two differ.
    """
    softmax = graph.maker(last.inputs[0], "F.softmax")
    if softmax is None or softmax.params.get("dim") not in (-1, 3):
        return None
    gone, name, mask = [softmax], softmax.inputs[0], None
    added = graph.maker(name, "pnnx.Expression")
    if added is not None:
        mask = graph.stored(added.inputs[1]) if added.params.get("expr") == "add(@0,@1)" else None
        if mask is None:
            return None
        gone.append(added)
        name = added.inputs[0]
    product = graph.maker(name, "torch.matmul")
    if product is None:
        return None
    query, query_scale, more = _unscaled(graph, product.inputs[0])
    key, key_scale, others = _unscaled(graph, product.inputs[1])
    gone += [product, *more, *others]
    found = _turned_back(graph, key)
    if found is None:
        return None
    key, turns = found
    specs = [graph.spec(each) for each in (query, key, last.inputs[1])]
    lead = {
        spec.shape[:2] if spec is not None and spec.rank == 4 and spec.dtype == np.float32 else None for spec in specs
    }
    if specs[0] is None or None in lead or len(lead) != 1:
        return None
    width = specs[0].shape[3]
    masked = _masked(added, mask, graph.spec(name))
    if not width or masked is None:
        return None
    names, params = masked
    scale = query_scale * key_scale
    if not math.isclose(scale, 1 / math.sqrt(width), rel_tol=_CLOSE):
        params["scale"] = scale
    labels = ("query", "key", "value", "attn_mask")[: 3 + len(names)]
    inputs = (query, key, last.inputs[1], *names)
    new = Operator(
        "F.scaled_dot_product_attention", last.name, inputs, last.outputs, {"dropout_p": 0.0, **params}, labels=labels
    )
    return new, [*gone, *turns]


def _unscaled(graph: Graph, name: str) -> tuple[str, float, list[Operator]]:
    """What a value is a multiple of, and by what."""
    op = graph.maker(name, "pnnx.Expression")
    found = _SCALED.fullmatch(str(op.params.get("expr"))) if op is not None and len(op.inputs) == 1 else None
    if op is None or found is None or not float(found[2]):
        return name, 1.0, []
    factor = float(found[2])
    return op.inputs[0], factor if found[1] == "mul" else 1 / factor, [op]


def _turned_back(graph: Graph, name: str) -> tuple[str, list[Operator]] | None:
    """The value whose last two axes were exchanged, be it with the first two as one."""
    turn = graph.maker(name, "torch.permute")
    if turn is not None:
        return (turn.inputs[0], [turn]) if turn.params.get("dims") == (0, 1, 3, 2) else None
    apart = graph.maker(name, "Tensor.reshape")
    turn = graph.maker(apart.inputs[0], "torch.permute") if apart is not None and len(apart.inputs) == 1 else None
    joint = graph.maker(turn.inputs[0], "Tensor.reshape") if turn is not None else None
    if apart is None or turn is None or joint is None or len(joint.inputs) != 1:
        return None
    before, flat, after = (graph.spec(each) for each in (joint.inputs[0], turn.inputs[0], name))
    if before is None or flat is None or after is None or not before.is_static or before.rank != 4 or flat.rank != 3:
        return None
    a, b, rows, columns = before.sizes
    is_plain = flat.shape == (a * b, rows, columns) and after.shape == (a, b, columns, rows)
    return (joint.inputs[0], [apart, turn, joint]) if is_plain and turn.params.get("dims") == (0, 2, 1) else None


def _masked(
    added: Operator | None, mask: Attribute | None, scores: TensorSpec | None
) -> tuple[list[str], dict[str, Parameter]] | None:
    """The operand that masks and the parameters; None where masking means something else here."""
    if added is None or mask is None:
        return [], {"attn_mask": None, "is_causal": False}
    array = mask.data
    if array.dtype != np.float32 or not 2 <= array.ndim <= 4 or scores is None:
        return None
    if array.shape[-2:] != scores.shape[-2:] or np.isneginf(array).all(axis=-1).any() or np.isnan(array).any():
        return None
    if array.ndim == 2 and array.shape[0] == array.shape[1] and np.array_equal(array, _triangle(len(array))):
        return [], {"attn_mask": None, "is_causal": True}
    return [added.inputs[1]], {"is_causal": False}


def _triangle(size: int) -> Array:
    above = np.triu(np.ones((size, size), np.bool_), 1)
    return np.where(above, np.float32(-np.inf), np.float32(0))
