"""What a model takes and gives, as the codec and the tasks need to know it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from numpy.typing import NDArray

import engine
from app.errors import InputMismatchError
from app.images.decode import Picture
from app.messages import cut, quoted
from app.small_arrays import dtype_name

# What a request gives for one input: a tensor, or pictures that the model's preprocessing makes one from.
Input: TypeAlias = NDArray[Any] | tuple[Picture, ...]
Inputs: TypeAlias = dict[str, Input]

_ADVICE: Final = "; to send pictures, set [preprocess] in the model's config.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The named inputs and outputs of a model; picture_input is the one that pictures may stand for."""

    inputs: tuple[engine.Port, ...]
    outputs: tuple[engine.Port, ...]
    picture_input: str | None = None

    def input(self, name: str) -> engine.Port:
        """The input of that name or alias.

        Raises:
            InputMismatchError: listing the names there are.
        """
        if (port := self.find_input(name)) is not None:
            return port
        raise InputMismatchError(
            f"unknown input: found '{cut(name)}', expected {quoted(self.input_names)}",
            found=name,
            expected=list(self.input_names),
        )

    def find_input(self, name: str) -> engine.Port | None:
        """Return the input of that name or alias; None where there is none."""
        return _find(self.inputs, name)

    def matched(self, names: Iterable[str]) -> dict[str, engine.Port]:
        """Return the input that each name or alias means.

        Raises:
            InputMismatchError: listing the names there are, or naming an input that two of the names mean.
        """
        found = {name: self.input(name) for name in names}
        for name, times in Counter(port.name for port in found.values()).items():
            if times > 1:
                raise InputMismatchError(f"input '{name}' is given twice", input=name)
        return found

    def output(self, name: str) -> engine.Port | None:
        """Return the output of that name or alias; None where there is none."""
        return _find(self.outputs, name)

    def only_input(self) -> engine.Port:
        """The input of a model with one.

        Raises:
            InputMismatchError: when there are several, so that the caller must name them.
        """
        if len(self.inputs) != 1:
            raise InputMismatchError(
                f"the model has {len(self.inputs)} inputs: found one unnamed tensor, expected"
                f" one for each of {quoted(self.input_names)}",
                expected=list(self.input_names),
            )
        return self.inputs[0]

    def picture_port(self, name: str | None = None) -> engine.Port:
        """The input a picture stands for; name, when the request gives one, must be that input's.

        Raises:
            InputMismatchError: when the model, or the input named, takes no pictures.
        """
        if self.picture_input is None and name is None and len(self.inputs) != 1:
            raise InputMismatchError(
                f"the model takes no pictures: found a picture, expected tensors for {quoted(self.input_names)}"
                f"{_ADVICE}",
                found="picture",
                expected=list(self.input_names),
            )
        if self.picture_input is None or name not in (None, self.picture_input):
            port = self.only_input() if name is None else self.input(name)
            raise InputMismatchError(
                f"input '{port.name}' takes no pictures: found a picture, expected a tensor {describe(port)}{_ADVICE}",
                input=port.name,
                found="picture",
                expected=describe(port),
            )
        return self.input(self.picture_input)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names, in the order of the graph."""
        return tuple(port.name for port in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names, in the order of the graph."""
        return tuple(port.name for port in self.outputs)


def _find(ports: Iterable[engine.Port], name: str) -> engine.Port | None:
    return next((port for port in ports if name == port.name or name in port.aliases), None)


def describe(port: engine.Port) -> str:
    """``[1, 3, ?, ?] float32``, or what is said where the graph file does not tell."""
    return "of any shape" if port.spec is None else f"{port.shape_text} {dtype_name(port.spec.dtype)}"
