"""Parser of one operator line of the text file.

    line  := type name n_in n_out (operand){n_in} (operand){n_out} (entry)*
    entry := key=value           parameter
           | @key=shape          attribute; its values are in the archive
           | $key=operand        Python argument an input stands for
           | #operand=shape      shape and dtype of an input or output

Values are neither quoted nor escaped, so a blank inside a string constant looks like the end of its entry. A word
without ``=``, or beginning with it, continues the parameter before it. Entries may come in any order.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.errors import ModelFormatError, ParamSyntaxError, quoted
from engine.pnnx.graph import Parameter
from engine.pnnx.shapes import Declaration, parse_declaration
from engine.pnnx.values import parse_parameter

T = TypeVar("T")

_WORD = re.compile(r"[^ \t\r]+")
_COUNT = re.compile(r"[0-9]{1,10}")
_MARKS: Final = "@$#"
# The converter of 2021 wrote its own types without a prefix.
_OLD_TYPES: Final = {old: f"pnnx.{old}" for old in ("Input", "Output", "Expression", "Attribute")}
_ARITY: Final = {"pnnx.Input": (0, 1), "pnnx.Output": (1, 0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Content of an operator line, independent of its graph.

    ``annotations`` pairs operands with the text of their shape, as often as they appear.
    """

    type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: dict[str, Parameter]
    declarations: dict[str, Declaration]
    labels: tuple[str | None, ...]
    annotations: list[tuple[str, str]]


def parse_line(text: str) -> Line:
    """Parse an operator line.

    Raises:
        ParamSyntaxError: for every fault that is visible without other lines.
        WeightsError: for an attribute of unknown dtype.
    """
    words = _WORD.findall(text)
    if len(words) < 4:
        raise ParamSyntaxError("too few words", found=quoted(text), expected="type, name and two counts")
    type, n_in, n_out = _OLD_TYPES.get(words[0], words[0]), _parse_count(words[2]), _parse_count(words[3])
    _check_arity(type, n_in, n_out)
    operands = words[4 : 4 + n_in + n_out]
    _check_operands(operands, n_in + n_out)
    entries = _sort_entries(words[4 + n_in + n_out :])
    inputs = tuple(operands[:n_in])
    _check_on_line(entries["#"], set(operands))
    return Line(
        type=type,
        name=words[1],
        inputs=inputs,
        outputs=tuple(operands[n_in:]),
        params=_parse_each("a", "parameter", entries[""], parse_parameter),
        declarations=_parse_each("an", "attribute", entries["@"], lambda _, text: parse_declaration(text)),
        labels=_merge_labels(inputs, entries["$"]),
        annotations=entries["#"],
    )


def _parse_count(word: str) -> int:
    if not _COUNT.fullmatch(word):
        raise ParamSyntaxError("not an operand count", found=quoted(word), expected="a decimal number")
    return int(word)


def _check_arity(type: str, n_in: int, n_out: int) -> None:
    arity = _ARITY.get(type, (n_in, n_out))
    if arity != (n_in, n_out):
        found, expected = (f"{i} inputs and {o} outputs" for i, o in ((n_in, n_out), arity))
        raise ParamSyntaxError(f"wrong operand counts of {type}", found=found, expected=expected)


def _check_operands(operands: Sequence[str], expected: int) -> None:
    if len(operands) < expected:
        raise ParamSyntaxError("operands are missing", found=len(operands), expected=expected)
    for operand in operands:
        if "=" in operand:
            raise ParamSyntaxError("an entry occurs in place of an operand", found=quoted(operand))


def _sort_entries(words: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the entries by the mark before their key, parameters under the empty mark; keys without it."""
    entries: dict[str, list[tuple[str, str]]] = {mark: [] for mark in ("", *_MARKS)}
    for key, value in _join_words(words):
        mark = key[0] if key[0] in _MARKS else ""
        if key == mark:
            raise ParamSyntaxError("an entry has no name", found=quoted(f"{key}={value}"))
        entries[mark].append((key[len(mark) :], value))
    return entries


def _join_words(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    key = ""
    parts: list[str] = []
    for word in words:
        head, equals, tail = word.partition("=")
        if head and equals:
            if key:
                yield key, " ".join(parts)
            key, parts = head, [tail]
        elif key and key[0] not in _MARKS:
            parts.append(word)
        else:
            raise ParamSyntaxError("a word is not in the pool", found=quoted(word), expected="key=value")
    if key:
        yield key, " ".join(parts)


def _parse_each(
    article: str, what: str, entries: Iterable[tuple[str, str]], parse: Callable[[str, str], T]
) -> dict[str, T]:
    parsed: dict[str, T] = {}
    for key, value in entries:
        if key in parsed:
            raise ParamSyntaxError(f"{article} {what} is given twice", found=quoted(key))
        try:
            parsed[key] = parse(key, value)
        except ModelFormatError as error:
            raise error.at(f"{what} {quoted(key)}") from None
    return parsed


def _check_on_line(annotations: Iterable[tuple[str, str]], operands: set[str]) -> None:
    for operand, _ in annotations:
        if operand not in operands:
            raise ParamSyntaxError("an annotation names an operand that is not on its line", found=quoted(operand))


def _merge_labels(inputs: tuple[str, ...], labels: Sequence[tuple[str, str]]) -> tuple[str | None, ...]:
    """Return a label or None for each input: labels come in input order, so inputs of one operand are distinguished."""
    merged: list[str | None] = [None] * len(inputs)
    position = 0
    for label, operand in labels:
        while position < len(inputs) and inputs[position] != operand:
            position += 1
        if position == len(inputs):
            return _match_labels(inputs, labels)
        merged[position] = label
        position += 1
    return tuple(merged)


def _match_labels(inputs: tuple[str, ...], labels: Sequence[tuple[str, str]]) -> tuple[str | None, ...]:
    """Return a label or None for each input; labels are out of order, and each takes its operand's first free input."""
    merged: list[str | None] = [None] * len(inputs)
    free: defaultdict[str, deque[int]] = defaultdict(deque)
    for position, operand in enumerate(inputs):
        free[operand].append(position)
    for label, operand in labels:
        if not free[operand]:
            raise ParamSyntaxError(f"argument {quoted(label)} has no input left to name", found=quoted(operand))
        merged[free[operand].popleft()] = label
    return tuple(merged)
