"""Patterns of operators that exporters spell out, each replaced by the one operator of PNNX that computes it.

``joined(operators, annotations, names)`` runs once, when every operator is made: only then all uses are known. An
operator is taken in only where nothing else uses its result, so that no result is lost or computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.pnnx.graph import Attribute, Operator
from engine.tensor import TensorSpec

_SHUFFLED: Final = (0, 2, 1, 3, 4)


def joined(operators: Sequence[Operator], annotations: Mapping[str, TensorSpec]) -> list[Operator]:
    """Return the operators with patterns replaced; unused operators are left for the caller to drop."""
    joiner = _Joiner(operators, annotations)
    for operator in operators:
        if operator.type in _JOINS:
            _JOINS[operator.type](joiner, operator)
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


_JOINS: Final[Mapping[str, Callable[[_Joiner, Operator], None]]] = {
    "pnnx.Expression": _bias,
    "Tensor.reshape": _channels,
}
