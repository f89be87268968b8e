"""The base class of all layers, which define the semantics of operators.

A layer states in one place how its parameters are read, how shapes are inferred, and how numpy computes it:

* the annotated *fields* are the parameters with their defaults (``dim: int = -1``);
* the arguments of ``forward`` are the operands, named as PyTorch names them (``input``, ``weight``, ...);
  an argument with a default may be absent; attributes stored with the operator arrive here by name too;
* ``infer`` takes the same arguments as ``forward``, as TensorSpec, and returns the spec of its result. It refuses
  operands that do not fit; ``forward`` gets only operands that it accepts.

Layers know nothing of graphs. A layer is immutable: any number of threads may run it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, dataclass_transform

from engine.tensor import UNKNOWN, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """The file's annotations of an operator's operands; a layer requests them by a field of this type.

    Args:
        inputs, outputs: annotated specs, None where the file has none.
        labels: the ``$name`` of each input, None where the file has none.
        subgraphs: subgraphs of an operator that branches or loops, by name, with ``infer``, ``run`` and ``count``.
    """

    inputs: tuple[TensorSpec | None, ...] = ()
    outputs: tuple[TensorSpec | None, ...] = ()
    labels: tuple[str | None, ...] = ()
    subgraphs: tuple[tuple[str, Any], ...] = ()

    @property
    def are_named(self) -> bool:
        """Return whether the file names the operands.

        An ONNX operator with named operands has all outputs before the last used one. Pairs of pnnx's converter name no
        operands, and omit optional ones without a trace.
        """
        return any(label is not None for label in self.labels)


NO_ANNOTATIONS = Annotations(outputs=(None,))


def _infer_nothing(self: Layer, *operands: object, **attributes: object) -> object:
    return UNKNOWN


class _Parameters:
    """Construction, comparison and repr of layers, shared by their hundreds of classes instead of generated for each.

    Generating them would add to the time of importing the engine.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, **given: object) -> None:
        for each in fields(self):
            if each.name in given:
                value = given.pop(each.name)
            elif each.default is not MISSING:
                value = each.default
            elif each.default_factory is not MISSING:
                value = each.default_factory()
            else:
                raise TypeError(f"{_name(self)}() missing a required keyword-only argument: {each.name!r}")
            object.__setattr__(self, each.name, value)
        for name in given:
            raise TypeError(f"{_name(self)}() got an unexpected keyword argument {name!r}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Derive further values from the parameters."""

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{self.__class__.__qualname__}({shown})"


# Said to be frozen, it would be given more to write for every class: see __setattr__.
dataclass(init=False, eq=False, repr=False)(_Parameters)


def _name(layer: _Parameters) -> str:
    return f"{type(layer).__qualname__}.__init__"


def _values(layer: Any) -> tuple[object, ...]:
    return tuple(getattr(layer, each.name) for each in fields(layer) if each.compare)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Layer(_Parameters):
    """Base of all layers; every subclass is a frozen, keyword-only dataclass of its parameters.

    ``forward`` returns one value for an operator with one output and a tuple of that length for one with
    several. ``infer`` does the same with specs, or returns UNKNOWN if the values decide the shape.
    """

    takes_unknown: ClassVar[bool] = False
    """True if infer() accepts operands that are UNKNOWN."""

    gives_numbers: ClassVar[bool] = False
    """True if forward() computes Python numbers, at the cost of a few operations."""

    does_arithmetic: ClassVar[bool] = True
    """True if forward() computes elements, False if it creates, moves or passes on values."""

    takes_sizes: ClassVar[bool] = False
    """True if forward() also accepts arrays of objects that hold symbolic sizes (engine/ir/sizes.py)."""

    loops: ClassVar[bool] = False
    """True if forward() loops in Python over its operands: elements, boxes, steps of a sequence."""
    has_subgraphs: ClassVar[bool] = False
    """True if it runs subgraphs."""

    infers_itself: ClassVar[bool] = False
    """True if forward() checks its operands and results itself; else infer() does before every run of forward()."""

    items_axis: ClassVar[int | None] = None
    """The batch axis of operands and results of a layer outside this package; None if not declared.

    Items of a batch must be computed independently of each other and of their number.
    """

    canonical_layers: ClassVar[tuple[type[Layer], ...]] = ()
    """Layers that ``canonicalise`` may return instead of this one."""

    forward: Callable[..., Any]
    infer: Callable[..., Any] = _infer_nothing

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A class without own parameters has those of its base, and their generated methods.
        if len(cls.__bases__) > 1 or "__annotations__" in cls.__dict__ or "__post_init__" in cls.__dict__:
            dataclass(kw_only=True, init=False, eq=False, repr=False)(cls)

    def canonicalise(self) -> Layer:
        """Return the canonical layer that computes the same; the layer itself unless a subclass knows another."""
        return self

    def flops(self, output: TensorSpec, *operands: object) -> int:
        """Return the floating-point operations of one forward: by default one per output element."""
        return output.size or 0 if self.does_arithmetic else 0

    def scratch_bytes(self, output: TensorSpec, *operands: object) -> int:
        """Return the bytes of one forward in addition to copies of its operands and its result."""
        return 0
