"""Inputs and outputs of a model, for codec and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

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

_ADVICE: Final = {
    "picture": "; to send pictures, set [preprocess] in the model's config.toml",
    "text": "; to send texts, set a task for texts in the model's config.toml",
    "sound": "; to send sounds, set [sound] in the model's config.toml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Named inputs and outputs of a model.

    Attributes:
        picture_input: the input that takes images, or None.
        text_input: the input that takes the token ids of texts, or None if the model takes no texts.
        sound_input: the input that takes sounds, or None.
        states: inputs that the server keeps; requests may leave them out.
    """

    inputs: tuple[engine.Port, ...]
    outputs: tuple[engine.Port, ...]
    picture_input: str | None = None
    text_input: str | None = None
    sound_input: str | None = None
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

    def picture_port(self, name: str | None = None) -> engine.Port:
        """Return the input that takes images; a given name must be the name of that input.

        Raises:
            InputMismatchError: the model, or the named input, takes no images.
        """
        if self.picture_input is None and name is None and (len(self.requested) != 1 or self._kinds):
            raise self._takes_no("picture")
        if self.picture_input is None or name not in (None, self.picture_input):
            port = self.only_input() if name is None else self.input(name)
            advice = "" if self._kinds else _ADVICE["picture"]
            raise InputMismatchError(
                f"input '{port.name}' takes no pictures: found a picture, expected a tensor {describe(port)}{advice}",
                input=port.name,
                found="picture",
                expected=describe(port),
            )
        return self.input(self.picture_input)

    def text_port(self) -> str:
        """Return the name of the input that takes the token ids of texts.

        Raises:
            InputMismatchError: the model takes no texts.
        """
        if self.text_input is None:
            raise self._takes_no("text")
        return self.text_input

    def sound_port(self, name: str | None = None) -> str:
        """Return the name of the input that takes sounds; a given name must be the name of that input.

        Raises:
            InputMismatchError: the model, or the named input, takes no sounds.
        """
        if self.sound_input is None or name not in (None, self.sound_input):
            raise self._takes_no("sound")
        return self.sound_input

    @property
    def requested(self) -> tuple[engine.Port, ...]:
        """Return the inputs that requests must have: all but states."""
        return tuple(port for port in self.inputs if port.name not in self.states) if self.states else self.inputs

    @property
    def _kinds(self) -> list[str]:
        """Return what the model takes besides tensors."""
        inputs = {"picture": self.picture_input, "text": self.text_input, "sound": self.sound_input}
        return [kind for kind, name in inputs.items() if name is not None]

    def _takes_no(self, kind: str) -> InputMismatchError:
        """Return the error for a picture, text or sound that the model does not take."""
        wanted = " or ".join([*(f"a {each}" for each in self._kinds), f"tensors for {quoted(self.input_names)}"])
        advice = "" if self._kinds else _ADVICE[kind]
        return InputMismatchError(
            f"the model takes no {kind}s: found a {kind}, expected {wanted}{advice}",
            found=kind,
            expected=list(self.input_names),
        )

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
