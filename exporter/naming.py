"""Names of a model's inputs and outputs, which the converter replaces by numbers, restored in the pair."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from app.models.folder.layout import PARAM
from exporter.onnx_files import OnnxModel

# Valid names of operands in a pair: one word without the marks of a line's entries.
_WORD: Final = re.compile(r"[^\s=#$@]+")
_NUMBER: Final = re.compile(r"[0-9]+\Z")
# Words before a line's operands: type, name, number of inputs and of outputs; each with the blanks after it.
_HEAD: Final = 4
_TYPES: Final = {"pnnx.Input": 0, "pnnx.Output": 1}


def keep_names(model: Any, folder: Path) -> None:
    """Name the operands of a pair's inputs after the arguments of ``forward``, or the tensors of an ONNX file.

    Args:
        model: the model that the pair was made from.
        folder: folder of the pair; its text file is rewritten.
    """
    names = (model.input_names, model.output_names) if isinstance(model, OnnxModel) else (_arguments(model), ())
    path = folder / PARAM
    lines = path.read_text("utf-8", "surrogateescape").split("\n")
    new = _new_names([re.split(r"(\s+)", line) for line in lines], names)
    if new:
        path.write_text("\n".join(_renamed(line, new) for line in lines), "utf-8", "surrogateescape")


def _arguments(model: Any) -> list[str]:
    """Return the names of the arguments that ``forward`` takes by position."""
    if isinstance(model, torch.jit.ScriptModule):
        return [argument.name for argument in model.forward.schema.arguments[1:]]
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # a forward without a signature
        return []
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def _new_names(lines: Sequence[Sequence[str]], names: Sequence[Sequence[str]]) -> Mapping[str, str]:
    """Return the operands to rename, with their new names; a name that the pair has already is not given."""
    taken, new = {name for line in lines for name in _operands(line)}, dict[str, str]()
    for line in lines:
        operands, side = _operands(line), _TYPES.get(line[0])
        number = _NUMBER.search(line[2]) if operands else None
        if side is None or number is None:
            continue
        index = int(number[0])
        name = names[side][index] if index < len(names[side]) else ""
        if len(operands) == 1 and operands[0] not in new and name not in taken and _WORD.fullmatch(name):
            taken.add(name)
            new[operands[0]] = name
    return new


def _operands(line: Sequence[str]) -> Sequence[str]:
    """Return the operands of an operator's line; none of any other line."""
    if len(line) <= 2 * _HEAD or not (line[4].isdigit() and line[6].isdigit()):
        return ()
    count = int(line[4]) + int(line[6])
    return line[2 * _HEAD : 2 * (_HEAD + count) : 2]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    line = re.split(r"(\s+)", text)
    operands = _operands(line)
    if not operands:
        return text
    entries = 2 * (_HEAD + len(operands))
    for at in range(2 * _HEAD, len(line), 2):
        word = line[at]
        key, equals, value = word.partition("=")
        if at < entries:
            line[at] = names.get(word, word)
        elif equals and key[:1] == "#":
            line[at] = f"#{names.get(key[1:], key[1:])}={value}"
        elif equals and key[:1] == "$":
            line[at] = f"{key}={names.get(value, value)}"
    return "".join(line)
