"""An operator as a rule sees it: its layer, its operands by name, and their abstract values."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from engine.errors import EngineError
from engine.graph.batch.independence.values import SHARED, SIZES, Items, Mixed, MixesError, Value, leaves
from engine.layers import BoundLayer
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import Overloaded
from engine.layers.onnx.operands.adapter import Adapter
from engine.tensor import TensorSpec, is_known, known_value, spec_of

COUNTS: Final = (1, 7, 11)
"""Numbers of items with which sizes are inferred. Three tell a linear function from others of a low degree."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """Operand of an operator.

    Args:
        value: its abstract value.
        specs: its description before a run, for each of COUNTS.
    """

    value: Value
    specs: tuple[Any, ...]

    @property
    def spec(self) -> Any:
        """Its description for several items."""
        return self.specs[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape for several items; empty for a number, that of a vector for a list of numbers."""
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
    def is_shared(self) -> bool:
        """Return whether nothing in it depends on the batch."""
        return all(leaf == SHARED for leaf in leaves(self.value))

    @property
    def is_given(self) -> bool:
        """Return whether it is given."""
        return self.spec is not None

    def known(self) -> tuple[Any, ...] | None:
        """Return its value for each of COUNTS; None unless it is known before a run."""
        values = tuple(known_value(spec) for spec in self.specs)
        return values if all(is_known(value) for value in values) else None

    def constant(self, what: str) -> Any:
        """Return its value, the same for every batch.

        Raises:
            MixesError: it is not known before a run, or not the same.
        """
        known = self.known()
        if known is None or not self.is_shared:
            raise MixesError(f"takes {what} that are not constant")
        return known[1]


ABSENT: Final = Operand(SHARED, (None,) * len(COUNTS))


class Use:
    """An operator and its operands.

    Attributes:
        layer: its layer, with the parameters that come as operands.
        named: the operands by their names in ``forward``.
        others: variadic operands.
        parameters: parameters of the layer that come as operands.
        results: descriptions of its outputs for each of COUNTS, one entry an output.
    """

    def __init__(
        self,
        layer: Layer,
        named: Mapping[str, Operand],
        others: Sequence[Operand],
        results: Sequence[tuple[Any, ...]],
        parameters: Mapping[str, Operand] | None = None,
    ) -> None:
        self.layer = layer
        self.named = named
        self.others = tuple(others)
        self.results = tuple(results)
        self.parameters = parameters or {}

    def __getitem__(self, name: str) -> Operand:
        """Return the operand of a name; ABSENT if the graph does not give it.

        Raises:
            KeyError: the layer has no operand of that name, so the rule is not about this layer.
        """
        if name not in operand_names(type(self.layer)):  # type: ignore[arg-type]
            raise KeyError(f"{type(self.layer).__name__} has no operand '{name}'")
        return self.named.get(name, ABSENT)

    def find(self, *names: str) -> Operand:
        """Return the first given operand of these names, for a rule of layers with different ones."""
        return next((self.named[name] for name in names if name in self.named), ABSENT)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Named operands, then the others."""
        return (*self.named.values(), *self.others)

    @property
    def first(self) -> Operand:
        """The first operand, which most operators call ``input``."""
        return next(iter(self.operands), ABSENT)

    def batch(self, name: str | None = None) -> Items:
        """Return the abstract value of an operand (by default the first), which must have a batch axis.

        Raises:
            MixesError: it does not.
        """
        operand = self.first if name is None else self[name]
        if not isinstance(operand.value, Items):
            raise MixesError("has an unexpected operand that depends on the items")
        return operand.value

    def only(self, *names: str) -> None:
        """Check that no other operands than these depend on the batch.

        Raises:
            MixesError: one does.
        """
        rest = [each for name, each in self.named.items() if name not in names]
        if not all(each.is_shared for each in (*rest, *self.others)):
            raise MixesError("has weights or parameters that depend on the items")

    def result_shapes(self, index: int = 0) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of an output for each of COUNTS.

        Raises:
            MixesError: only a run can tell them.
        """
        specs = self.results[index]
        if not all(isinstance(spec, TensorSpec) and spec.is_static for spec in specs):
            raise MixesError("has a result whose size is unknown before a run")
        return tuple(spec.sizes for spec in specs)


def use_of(layer: BoundLayer, inputs: Sequence[Operand], results: Sequence[tuple[Any, ...]]) -> Use:
    """Return an operator's use, given the abstract values of its inputs in the file's order.

    Raises:
        MixesError: a parameter depends on the items.
    """
    if isinstance(layer.layer, Overloaded):
        inner, kept = layer.layer.chosen(inputs)
        return use_of(inner, kept, results)
    for index in layer.dynamic.values():
        if any(isinstance(leaf, (Items, Mixed)) for leaf in leaves(inputs[index].value)):
            raise MixesError("takes a parameter that depends on the items")
    positional = [_argument(source, inputs) for source in layer.positional]
    keywords = {name: _argument(source, inputs) for name, source in layer.keywords.items()}
    parameters = {name: inputs[index] for name, index in layer.dynamic.items()}
    return arranged(_with_parameters(layer, inputs), positional, keywords, results, parameters)


def adapted(use: Use) -> Use | None:
    """Return the use of the canonical layer of an ONNX operator; None if it has none."""
    if not isinstance(use.layer, Adapter):
        return None
    try:
        layer = use.layer.canonical(*(operand.spec for operand in use.operands))
    except EngineError:
        return None
    return arranged(layer, use.operands, {}, use.results, use.parameters)


def arranged(
    layer: Layer,
    positional: Sequence[Operand],
    keywords: Mapping[str, Operand],
    results: Sequence[tuple[Any, ...]],
    parameters: Mapping[str, Operand] | None = None,
) -> Use:
    """Return the use of a layer, with its operands by their names."""
    names = operand_names(type(layer), _LEADING)  # type: ignore[arg-type]  # classes are hashable
    given = {**dict(zip(names, positional, strict=False)), **keywords}
    # In the order of ``forward``; a file may have keywords in any order.
    order = operand_names(type(layer))  # type: ignore[arg-type]
    named = {name: given[name] for name in order if name in given}
    return Use(layer, named, positional[len(names) :], results, parameters)


_LEADING: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED: Final = (*_LEADING, inspect.Parameter.KEYWORD_ONLY)


@lru_cache(maxsize=2048)
def operand_names(layer: type[Layer], kinds: tuple[Any, ...] = _NAMED) -> tuple[str, ...]:
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
    return Operand(SHARED, (spec_of(value, with_value=True),) * len(COUNTS))


def _with_parameters(layer: BoundLayer, inputs: Sequence[Operand]) -> Layer:
    """Return the layer with the parameters that come as operands, for several items; unknown ones stay dynamic."""
    if not layer.dynamic:
        return layer.layer
    try:
        return layer.with_parameters([operand.spec for operand in inputs])
    except EngineError:
        raise MixesError("has a parameter that is known only in a run") from None


def has_sizes(value: Value) -> bool:
    """Return whether numbers in it depend on the number of items."""
    return any(leaf == SIZES for leaf in leaves(value))
