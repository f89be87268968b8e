"""Registry of layers by operator type. Types are PNNX names, each registered once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from engine.errors import ParameterError, UnsupportedOperatorError
from engine.layers.definition.layer import Layer
from engine.layers.definition.signature import Signature

L = TypeVar("L", bound=type[Layer])

_SCRIPTED: Final = "the branches and loops of a scripted model are not exported: trace it"
_BODY: Final = (
    "pnnx does not write what an ONNX {type} repeats or chooses: unroll it, or let its condition be a constant"
)
_HINTS: Final = {
    "prim::If": _SCRIPTED,
    "prim::Loop": _SCRIPTED,
    **{type: _BODY.format(type=type) for type in ("If", "Loop", "Scan", "SequenceMap")},
}
_FOREIGN: Final = "custom_op."
_FOREIGN_HINT: Final = "pnnx drops attributes and weights of operators outside ONNX's own domain: export without them"


class Registry:
    """Operator types that a graph may use."""

    def __init__(self) -> None:
        self._signatures: dict[str, Signature] = {}

    def __contains__(self, type: str) -> bool:
        return type in self._signatures

    def __iter__(self) -> Iterator[str]:
        return iter(self._signatures)

    def __getitem__(self, type: str) -> Signature:
        """Return the signature of a type.

        Raises:
            UnsupportedOperatorError: when no layer is registered for it.
        """
        if type not in self._signatures:
            self.check([(type, "")])
        return self._signatures[type]

    def register(
        self,
        *types: str,
        presets: Mapping[str, Any] | None = None,
        ignored: Iterable[str] = (),
        flags: Mapping[str, Sequence[str]] | None = None,
        shapes: Mapping[str, Sequence[str]] | None = None,
        positional: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
        formula: str = "",
    ) -> Callable[[L], L]:
        """Return a class decorator that registers a layer for these types; see Signature for the keywords.

        Raises:
            ParameterError: when a type has a layer already, or the class is not a Layer.
        """

        def add(layer: L) -> L:
            for type in types:
                self._add(
                    Signature(
                        type=type,
                        layer=_checked(layer),
                        presets=presets or {},
                        ignored=frozenset(ignored),
                        flags=flags or {},
                        shapes=shapes or {},
                        positional=tuple(positional),
                        renamed=renamed or {},
                        formula=formula,
                    )
                )
            return layer

        return add

    def alias(self, core: str, *types: str, **changes: Any) -> None:
        """Register other types for the layer of a core operator.

        Args:
            changes: what differs from the signature of the core operator.
        """
        for type in types:
            self._add(replace(self[core], type=type, **changes))

    def _add(self, signature: Signature) -> None:
        if signature.type in self._signatures:
            raise ParameterError(
                "operator type is registered already",
                where=signature.type,
                found=signature.layer.__qualname__,
                expected=f"only {self._signatures[signature.type].layer.__qualname__}",
            )
        self._signatures[signature.type] = signature

    @contextmanager
    def extended(self) -> Iterator[Registry]:
        """Remove the registrations made in the block when it ends."""
        before = dict(self._signatures)
        try:
            yield self
        finally:
            self._signatures = before

    def check(self, operators: Iterable[tuple[str, str]]) -> None:
        """Report all unknown types of a graph at once.

        Args:
            operators: (type, operator name) pairs.

        Raises:
            UnsupportedOperatorError: naming each unknown type, its operators and the nearest known type.
        """
        unknown: dict[str, list[str]] = {}
        for type, name in operators:
            if type not in self._signatures:
                unknown.setdefault(type, []).append(name)
        if unknown:
            raise UnsupportedOperatorError(self._describe_unknown(unknown))

    def _describe_unknown(self, unknown: Mapping[str, Sequence[str]]) -> str:
        details = [self._describe_one(type, names) for type, names in unknown.items()]
        plural = "type" if len(unknown) == 1 else "types"
        advice = "; --plugin FILE.py loads layers of your own (engine.register)"
        return f"no layer for {len(unknown)} operator {plural}: {', '.join(details)}{advice}"

    def _describe_one(self, type: str, names: Sequence[str]) -> str:
        notes = [", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")] if any(names) else []
        nearest = self.nearest(type)
        if type in _HINTS:
            notes.append(_HINTS[type])
        elif type.startswith(_FOREIGN):
            notes.append(_FOREIGN_HINT)
        elif nearest:
            notes.append(f"did you mean '{nearest}'?")
        return f"'{type}'" + (f" ({'; '.join(notes)})" if notes else "")

    def type_of(self, layer: Layer) -> str:
        """Return a type whose operators, with all fields that it does not fix as parameters, have this layer.

        Raises:
            UnsupportedOperatorError: there is none.
        """
        for type, signature in self._signatures.items():
            fixed = signature.presets.items()
            if signature.layer is layer.__class__ and all(getattr(layer, name, None) == value for name, value in fixed):
                return type
        raise UnsupportedOperatorError(f"no operator type has the layer {layer!r}")

    def nearest(self, type: str) -> str | None:
        """Return the known type with the most similar spelling; None if there is none."""
        folded = {known.lower(): known for known in self._signatures}
        matches = difflib.get_close_matches(type.lower(), folded, n=1, cutoff=0.7)
        return folded[matches[0]] if matches else None


def _checked(layer: Any) -> type[Layer]:
    if not (isinstance(layer, type) and issubclass(layer, Layer)):
        raise ParameterError("only a class derived from Layer can be registered", found=repr(layer))
    return layer


registry: Final = Registry()
"""Layers of this package; users add their own with engine.register."""

register = registry.register


def register_ranks(*types: str, flags: Mapping[str, Sequence[str]] | None = None) -> Callable[[L], L]:
    """Return a class decorator that registers a layer with a spatial_rank for 1, 2 and 3 axes, as in ``nn.Conv{}d``."""

    def add(layer: L) -> L:
        for rank in (1, 2, 3):
            register(*[each.format(rank) for each in types], presets={"spatial_rank": rank}, flags=flags)(layer)
        return layer

    return add
