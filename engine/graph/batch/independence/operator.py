"""An operator as a rule sees it: its layer, its operands by name, and their abstract values."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from engine.errors import EngineError
from engine.graph.batch.independence.values import SHARED, Items, Mixed, MixesError, Value, leaves
from engine.ir.dims import Dim
from engine.ir.sizes import has_sizes
from engine.layers import BoundLayer
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import Overloaded
from engine.tensor import TensorSpec, known_value, spec_of

_LEADING: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED: Final = (*_LEADING, inspect.Parameter.KEYWORD_ONLY)


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """Operand of an operator.

    Args:
        value: its abstract value.
        spec: its description before a run.
    """

    value: Value
    spec: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; empty for a number, that of a vector for a list of numbers."""
        if isinstance(self.spec, (list, tuple)):
            return (len(self.spec),)
        if not isinstance(self.spec, TensorSpec):
            return ()
        if None in self.spec.shape:
            raise MixesError("has an operand whose size is unknown before a run")
        return self.spec.sizes

    @property
    def dtype(self) -> Any:
        """Its dtype."""
        return self.spec.dtype

    @property
    def rank(self) -> int:
        """Its number of dimensions."""
        return len(self.shape)

    @property
    def is_items(self) -> bool:
        """Return whether it is a tensor that holds the batch along one axis."""
        return isinstance(self.value, Items)

    @property
    def has_sizes(self) -> bool:
        """Return whether numbers in it depend on the number of items."""
        return any(has_sizes(known_value(leaf)) for leaf in leaves(self.spec))

    @property
    def is_shared(self) -> bool:
        """Return whether nothing in it depends on the batch."""
        return not self.has_sizes and all(leaf == SHARED for leaf in leaves(self.value))

    @property
    def is_given(self) -> bool:
        """Return whether it is given."""
        return self.spec is not None

    def length(self, axis: int) -> int:
        """Return its size along an axis; 1 if it has no such axis, counted from the end."""
        return self.shape[axis] if self.rank >= -axis else 1


ABSENT: Final = Operand(SHARED, None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An operator and its operands.

    Args:
        layer: its layer, with the parameters that come as operands.
        named: the operands by their names in ``forward``.
        others: variadic operands.
        parameters: parameters of the layer that come as operands.
        results: descriptions of its outputs.
    """

    layer: Any
    named: Mapping[str, Operand]
    others: tuple[Operand, ...] = ()
    parameters: Mapping[str, Operand] = dataclasses.field(default_factory=dict)
    results: Sequence[Any]

    def __getitem__(self, name: str) -> Operand:
        """Return the operand of a name; ABSENT if the graph does not give it.

        Raises:
            KeyError: the layer has no operand of that name, so the rule is not about this layer.
        """
        if name not in self.names:
            raise KeyError(f"{type(self.layer).__name__} has no operand '{name}'")
        return self.named.get(name, ABSENT)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operands that the layer has."""
        kind: Any = type(self.layer)
        return operand_names(kind)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Named operands, then the others."""
        return (*self.named.values(), *self.others)

    @property
    def first(self) -> Operand:
        """The first operand, which most operators call ``input``."""
        return next(iter(self.operands), ABSENT)

    def given(self, *names: str) -> list[Operand]:
        """Return the given operands of these names, by default the first one; no other may depend on the batch.

        Raises:
            MixesError: another one does.
        """
        found = [self[name] for name in names] or [self.first]
        rest = [each for name, each in self.named.items() if name not in (names or tuple(self.named)[:1])]
        if not all(each.is_shared for each in (*rest, *self.others[0 if self.named else 1 :])):
            raise MixesError("has weights or parameters that depend on the items")
        return [each for each in found if each.is_given]

    def items(self, *names: str) -> Items:
        """Return the abstract value of the given operands of these names, by default the first one.

        Raises:
            MixesError: one of them does not hold the batch, or another way than the first, or another operand does.
        """
        return common_items(self.given(*names))

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output."""
        return Operand(SHARED, self.results[index]).shape


def per_item(size: Any) -> int | None:
    """Return a size divided by the number of items, if that is the same number for all."""
    if not isinstance(size, Dim) or len(size.terms) != 1:
        return None
    ((product, factor),) = size.terms
    return factor if product == (0,) else None


def common_items(operands: Sequence[Operand]) -> Items:
    """Return the abstract value of operands that all hold the batch, in the same order.

    Raises:
        MixesError: they do not.
    """
    values = [each.value for each in operands]
    if not values or not all(isinstance(value, Items) for value in values):
        raise MixesError("combines operands that hold the batch with others that do not")
    if len({value.layout for value in values}) > 1:
        raise MixesError("combines operands that hold the batch in different orders")
    return values[0]  # type: ignore[no-any-return]


def aligned_items(operands: Sequence[Operand]) -> Items:
    """Return the same for operands of one rank that hold the batch along one axis."""
    items = common_items(operands)
    if len({(each.value.axis, each.rank) for each in operands}) > 1:
        raise MixesError("combines operands that hold the batch along different axes")
    return items


def use_of(layer: BoundLayer, inputs: Sequence[Operand], results: Sequence[Any]) -> Use:
    """Return an operator's use, given the abstract values of its inputs in the file's order.

    Raises:
        MixesError: a parameter depends on the items.
    """
    if isinstance(layer.layer, Overloaded):
        inner, kept = layer.layer.chosen(inputs)
        return use_of(inner, kept, results)
    parameters = {name: inputs[index] for name, index in layer.dynamic.items()}
    if any(isinstance(leaf, (Items, Mixed)) for each in parameters.values() for leaf in leaves(each.value)):
        raise MixesError("takes a parameter that depends on the items")
    positional = [_argument(source, inputs) for source in layer.positional]
    keywords = {name: _argument(source, inputs) for name, source in layer.keywords.items()}
    return arranged(_with_parameters(layer, inputs), positional, keywords, results, parameters)


def arranged(
    layer: Layer,
    positional: Sequence[Operand],
    keywords: Mapping[str, Operand],
    results: Sequence[Any],
    parameters: Mapping[str, Operand] | None = None,
) -> Use:
    """Return the use of a layer, with its operands by their names."""
    kind: Any = type(layer)
    names = operand_names(kind, _LEADING)
    given = {**dict(zip(names, positional, strict=False)), **keywords}
    # In the order of ``forward``; a file may have keywords in any order.
    named = {name: given[name] for name in operand_names(kind) if name in given}
    others = tuple(positional[len(names) :])
    return Use(layer=layer, named=named, others=others, results=results, parameters=parameters or {})


@lru_cache(maxsize=2048)
def operand_names(layer: Any, kinds: tuple[Any, ...] = _NAMED) -> tuple[str, ...]:
    """Return the names of the operands that ``forward`` of a layer has, in its order.

    Args:
        kinds: of its parameters.
    """
    arguments = list(inspect.signature(layer.forward).parameters.values())[1:]
    return tuple(each.name for each in arguments if each.kind in kinds)


def _argument(source: Any, inputs: Sequence[Operand]) -> Operand:
    return constant_operand(source.constant) if source.index is None else inputs[source.index]


def constant_operand(value: object) -> Operand:
    """Return the operand that a constant is."""
    return Operand(SHARED, spec_of(value, with_value=True))


def _with_parameters(layer: BoundLayer, inputs: Sequence[Operand]) -> Layer:
    """Return the layer with the parameters that come as operands; unknown ones stay dynamic."""
    if not layer.dynamic:
        return layer.layer
    try:
        return layer.with_parameters([operand.spec for operand in inputs])
    except EngineError:
        raise MixesError("has a parameter that is known only in a run") from None
