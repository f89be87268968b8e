"""Inputs and outputs of a model, for codec and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from numpy.typing import NDArray

import engine
from app.arrays import dtype_name
from app.errors import InputMismatchError
from app.images.decoded import PictureSource
from app.messages import cut, quoted
from app.sound.sound import Sounds
from app.text.text import Texts

# Value of an input: a tensor, images that preprocessing turns into one, or texts or sounds that become all inputs.
Input: TypeAlias = NDArray[Any] | tuple[PictureSource, ...] | Texts | Sounds
Inputs: TypeAlias = dict[str, Input]

Kind: TypeAlias = Literal["picture", "text", "sound"]
_ADVICE: Final[Mapping[Kind, str]] = {
    "picture": "; to send pictures, set [preprocess] in the model's config.toml",
    "text": "; to send texts, set a task for texts in the model's config.toml",
    "sound": "; to send sounds, set [sound] in the model's config.toml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Named inputs and outputs of a model.

    Attributes:
        contents: name of an input -> what it takes besides tensors.
        states: inputs that the server keeps; requests may leave them out.
    """

    inputs: tuple[engine.Port, ...]
    outputs: tuple[engine.Port, ...]
    contents: Mapping[str, Kind] = field(default_factory=dict)
    states: frozenset[str] = frozenset()

    def input(self, name: str) -> engine.Port:
        """Return the input of a name or alias.

        Raises:
            InputMismatchError: there is none; lists the names.
        """
        if (port := self.find_input(name)) is not None:
            return port
        raise InputMismatchError(
            f"unknown input: found '{cut(name)}', expected {quoted(self.input_names)}",
            found=name,
            expected=list(self.input_names),
        )

    def find_input(self, name: str) -> engine.Port | None:
        """Return the input of a name or alias, or None."""
        return find_port(self.inputs, name)

    def matched(self, names: Iterable[str]) -> dict[str, engine.Port]:
        """Return the input of each name or alias.

        Raises:
            InputMismatchError: a name is unknown, or two names mean the same input.
        """
        found = {name: self.input(name) for name in names}
        for name, times in Counter(port.name for port in found.values()).items():
            if times > 1:
                raise InputMismatchError(f"input '{name}' is given twice, expected once", input=name)
        return found

    def output(self, name: str) -> engine.Port | None:
        """Return the output of a name or alias, or None."""
        return find_port(self.outputs, name)

    def only_input(self) -> engine.Port:
        """Return the only input.

        Raises:
            InputMismatchError: there are several, which the request must name.
        """
        if len(self.requested) != 1:
            raise InputMismatchError(
                f"the model has {len(self.requested)} inputs: found one unnamed tensor, expected"
                f" one for each of {quoted(self.input_names)}",
                expected=list(self.input_names),
            )
        return self.requested[0]

    def takes(self, kind: Kind) -> str | None:
        """Return the name of the input that takes pictures, texts or sounds; None if the model takes none."""
        return next((name for name, own in self.contents.items() if own == kind), None)

    def content_port(self, kind: Kind, name: str | None = None) -> engine.Port:
        """Return the input that takes pictures, texts (their token ids) or sounds.

        Args:
            kind: of the contents.
            name: name that the request gives the input, which must be this one's; or None.

        Raises:
            InputMismatchError: the model, or the named input, takes no such contents.
        """
        own = self.takes(kind)
        if own is not None and name in (None, own):
            return self.input(own)
        found, advice = f"takes no {kind}s: found a {kind}", "" if self.contents else _ADVICE[kind]
        if name is None and (len(self.requested) != 1 or self.contents):
            wanted = " or ".join(
                [*(f"a {each}" for each in self.contents.values()), f"tensors for {quoted(self.input_names)}"]
            )
            raise InputMismatchError(
                f"the model {found}, expected {wanted}{advice}", found=kind, expected=list(self.input_names)
            )
        port = self.requested[0] if name is None else self.input(name)
        raise InputMismatchError(
            f"input '{port.name}' {found}, expected a tensor {describe(port)}{advice}",
            input=port.name,
            found=kind,
            expected=describe(port),
        )

    @property
    def requested(self) -> tuple[engine.Port, ...]:
        """Return the inputs that requests must have: all but states."""
        return tuple(port for port in self.inputs if port.name not in self.states) if self.states else self.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the names of the inputs that requests must have, in the order of the graph."""
        return tuple(port.name for port in self.requested)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the names in the order of the graph."""
        return tuple(port.name for port in self.outputs)


def find_port(ports: Iterable[engine.Port], name: str) -> engine.Port | None:
    """Return the port of a name or alias, or None."""
    return next((port for port in ports if name == port.name or name in port.aliases), None)


def describe(port: engine.Port) -> str:
    """Return shape and dtype, ``[1, 3, ?, ?] float32``, or ``of any shape`` if the file does not state them."""
    return "of any shape" if port.spec is None else f"{port.shape_text} {dtype_name(port.spec.dtype)}"
