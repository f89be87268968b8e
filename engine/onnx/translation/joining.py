"""Patterns of operators that exporters spell out, each replaced by the one operator of PNNX that computes it.

``joined(operators, annotations, names)`` runs once, when every operator is made: only then all uses are known. An
operator is taken in only where nothing else uses its result, so that no result is lost or computed twice.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from engine.pnnx.graph import Attribute, Operator, Parameter
from engine.tensor import Array, TensorSpec

_SCALED: Final = re.compile(r"(mul|div)\(@0,([0-9.eE+-]+)\)")
_CLOSE: Final = 1e-6


class Graph(Protocol):
    """Interface of the surrounding graph."""

    def maker(self, name: str, type: str) -> Operator | None: ...
    def spec(self, name: str) -> TensorSpec | None: ...
    def stored(self, name: str) -> Attribute | None: ...


def attention(graph: Graph, last: Operator) -> tuple[Operator, list[Operator]] | None:
    """Return an attention operator for a chain that ends in a product, and the operators it replaces, or None.

    Masks are included if they are stored and leave at least one element of every row: for fully masked rows the results
    differ.
    """
    softmax = graph.maker(last.inputs[0], "F.softmax")
    if softmax is None or softmax.params.get("dim") not in (-1, 3):
        return None
    removed, name, mask = [softmax], softmax.inputs[0], None
    added = graph.maker(name, "pnnx.Expression")
    if added is not None:
        mask = graph.stored(added.inputs[1]) if added.params.get("expr") == "add(@0,@1)" else None
        if mask is None:
            return None
        removed.append(added)
        name = added.inputs[0]
    product = graph.maker(name, "torch.matmul")
    if product is None:
        return None
    query, query_scale, more = _unscaled(graph, product.inputs[0])
    key, key_scale, others = _unscaled(graph, product.inputs[1])
    removed += [product, *more, *others]
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
    return new, [*removed, *turns]


def _unscaled(graph: Graph, name: str) -> tuple[str, float, list[Operator]]:
    """Return the unscaled value of a product with a number, the factor, and the operators."""
    op = graph.maker(name, "pnnx.Expression")
    found = _SCALED.fullmatch(str(op.params.get("expr"))) if op is not None and len(op.inputs) == 1 else None
    if op is None or found is None or not float(found[2]):
        return name, 1.0, []
    factor = float(found[2])
    return op.inputs[0], factor if found[1] == "mul" else 1 / factor, [op]


def _turned_back(graph: Graph, name: str) -> tuple[str, list[Operator]] | None:
    """Return the value whose last two axes were swapped, even with the first two merged."""
    turn = graph.maker(name, "torch.permute")
    if turn is not None:
        return (turn.inputs[0], [turn]) if turn.params.get("dims") == (0, 1, 3, 2) else None
    reshaped = graph.maker(name, "Tensor.reshape")
    turn = (
        graph.maker(reshaped.inputs[0], "torch.permute") if reshaped is not None and len(reshaped.inputs) == 1 else None
    )
    joint = graph.maker(turn.inputs[0], "Tensor.reshape") if turn is not None else None
    if reshaped is None or turn is None or joint is None or len(joint.inputs) != 1:
        return None
    before, flat, after = (graph.spec(each) for each in (joint.inputs[0], turn.inputs[0], name))
    if before is None or flat is None or after is None or not before.is_static or before.rank != 4 or flat.rank != 3:
        return None
    a, b, rows, columns = before.sizes
    is_plain = flat.shape == (a * b, rows, columns) and after.shape == (a, b, columns, rows)
    return (joint.inputs[0], [reshaped, turn, joint]) if is_plain and turn.params.get("dims") == (0, 2, 1) else None


def _masked(
    added: Operator | None, mask: Attribute | None, scores: TensorSpec | None
) -> tuple[list[str], dict[str, Parameter]] | None:
    """Return the mask operand and the parameters; None if the mask differs from PyTorch's."""
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


_SHUFFLED: Final = (0, 2, 1, 3, 4)


def joined(operators: Sequence[Operator], annotations: Mapping[str, TensorSpec]) -> list[Operator]:
    """Return the operators with patterns replaced; unused operators are left for the caller to drop."""
    joiner = _Joiner(operators, annotations)
    for operator in operators:
        for join in _JOINS.get(operator.type, ()):
            join(joiner, operator)
    return joiner.operators()


class _Joiner:
    def __init__(self, operators: Sequence[Operator], annotations: Mapping[str, TensorSpec]) -> None:
        self._places = {id(op): place for place, op in enumerate(operators)}
        self._kept: list[Operator | None] = list(operators)
        self._makers = {name: op for op in operators for name in op.outputs}
        self._uses = Counter(name for op in operators for name in op.inputs)
        self._annotations = annotations

    def operators(self) -> list[Operator]:
        return [op for op in self._kept if op is not None]

    def maker(self, name: str, type: str) -> Operator | None:
        """Return the maker of a value if it has the type and nothing else uses the value."""
        found = self._makers.get(name)
        is_only = found is not None and found.type == type and len(found.outputs) == 1 and self._uses[name] == 1
        return found if is_only else None

    def spec(self, name: str) -> TensorSpec | None:
        return self._annotations.get(name)

    def stored(self, name: str) -> Attribute | None:
        """Return the elements of a stored value."""
        found = self._makers.get(name)
        return found.attributes["data"] if found is not None and found.type == "pnnx.Attribute" else None

    def put(self, last: Operator, new: Operator, *removed: Operator) -> None:
        """Replace operators by a new one at the position of the last."""
        place = self._places[id(last)]
        for each in (last, *removed):
            self._uses.subtract(each.inputs)
            self._kept[self._places[id(each)]] = None
        self._uses.update(new.inputs)
        self._kept[place] = new
        self._places[id(new)] = place
        self._makers.update(dict.fromkeys(new.outputs, new))


def _bias(joiner: _Joiner, add: Operator) -> None:
    """Join a product with a stored matrix and an added stored vector: one nn.Linear."""
    if add.params.get("expr") != "add(@0,@1)" or len(add.inputs) != 2:
        return
    for name, other in (add.inputs, add.inputs[::-1]):
        linear, bias = joiner.maker(name, "nn.Linear"), joiner.stored(other)
        if linear is None or bias is None or linear.params.get("bias") is not False:
            continue
        width, spec = linear.params["out_features"], joiner.spec(name)
        weight = linear.attributes["weight"]
        if spec is None or bias.shape[-1:] != (width,) or bias.data.size != width or bias.dtype != weight.dtype:
            continue
        if len(bias.shape) > spec.rank:
            continue
        flat = bias.data.reshape(-1)
        attributes = {**linear.attributes, "bias": Attribute(flat.shape, flat.dtype, flat)}
        params = {**linear.params, "bias": True}
        new = replace(linear, name=add.name, outputs=add.outputs, params=params, attributes=attributes)
        joiner.put(add, new, linear)
        return


def _channels(joiner: _Joiner, last: Operator) -> None:
    """Join channels split into groups, transposed, and merged again: one nn.ChannelShuffle."""
    turn = joiner.maker(last.inputs[0], "torch.permute") if len(last.inputs) == 1 else None
    if turn is None or turn.params.get("dims") != _SHUFFLED:
        return
    first = joiner.maker(turn.inputs[0], "Tensor.reshape")
    if first is None or len(first.inputs) != 1:
        return
    before, parts, after = (joiner.spec(name) for name in (first.inputs[0], turn.inputs[0], last.outputs[0]))
    if before is None or parts is None or after is None or before.shape != after.shape or before.rank != 4:
        return
    groups = parts.shape[1]
    # One dynamic size, the number of images, is allowed: it is unchanged, as all others are.
    if None in before.shape[1:] or parts.rank != 5 or None in parts.shape[1:] or parts.shape[0] != before.shape[0]:
        return
    if parts.shape[3:] != before.shape[2:]:
        return
    new = Operator("nn.ChannelShuffle", last.name, first.inputs, last.outputs, {"groups": groups})
    joiner.put(last, new, turn, first)


def _attention(joiner: _Joiner, last: Operator) -> None:
    """Join products around a softmax: one F.scaled_dot_product_attention."""
    found = attention(joiner, last)
    if found is not None:
        joiner.put(last, found[0], *found[1])


_JOINS: Final[Mapping[str, Sequence[Callable[[_Joiner, Operator], None]]]] = {
    "pnnx.Expression": (_bias,),
    "Tensor.reshape": (_channels,),
    "torch.matmul": (_attention,),
}
