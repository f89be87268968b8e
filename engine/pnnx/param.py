"""The text file: magic number, counts, one line an operator.

Rules that span lines are checked here: counts, every operand made once and before it is used, annotations that agree,
at least one output. Operators with repeated names get unique ones. Nothing is allocated because of a stated count.
Blank lines may follow the last operator, and lines may end in CR LF as version control leaves them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from engine.cancellation import cancellable_quick
from engine.errors import ModelFormatError, ParamSyntaxError, quoted
from engine.pnnx.files import kind_of_file
from engine.pnnx.graph import Graph, Operator, named_apart
from engine.pnnx.line import Line, parse_line
from engine.pnnx.shapes import Announcement, Declaration, parse_annotation
from engine.tensor import DTYPES, TensorSpec

MAGIC: Final = "7767517"
MAX_LINE: Final = 2**20

_COUNTS = re.compile(r"[ \t]*([0-9]{1,10})[ \t]+([0-9]{1,10})[ \t\r]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(slots=True)
class ParamFile:
    """Content of a text file.

    Args:
        graph: operators and annotations; attributes are still empty.
        declarations: for each operator, in the same order, the attributes that the archive must hold.
    """

    graph: Graph = field(default_factory=lambda: Graph([]))
    declarations: list[dict[str, Declaration]] = field(default_factory=list)


def parse_param(data: bytes, file: str) -> ParamFile:
    """Read the text file.

    Args:
        data: its bytes.
        file: its name, for messages.

    Raises:
        ParamSyntaxError: every error is placed at its line.
        WeightsError: for an attribute of unknown dtype.
    """
    lines = _numbered_lines(_decode(data, file), file)
    reader = _Reader()
    n_operators, n_operands = _parse_header(lines, file)
    for number, text in cancellable_quick(lines):
        if len(reader.file.declarations) == n_operators:
            _check_blank(text, n_operators, file, number)
            continue
        try:
            reader.add(parse_line(text), number)
        except ModelFormatError as error:
            raise error.at(_place(file, number)) from None
    reader.check_counts(n_operators, n_operands, file)
    reader.file.graph.operators[:] = named_apart(reader.file.graph.operators)
    return reader.file


class _Reader:
    """The lines so far, and the names they define."""

    def __init__(self) -> None:
        self.file = ParamFile()
        self._members: dict[str, str] = {}
        # Operand names map to themselves, so that each name is stored only once.
        self._made: dict[str, str] = {}
        self._announced: dict[str, tuple[str, Announcement]] = {}
        self._has_output = False

    def add(self, line: Line, number: int) -> None:
        """Add the next line, or refuse it if it contradicts the lines before."""
        self._has_output |= line.type == "pnnx.Output"
        inputs = tuple(self._use(operand) for operand in line.inputs)
        outputs = tuple(self._make(operand) for operand in line.outputs)
        for operand, text in line.annotations:
            self._announce(operand, text)
        self._declare(line)
        self.file.graph.operators.append(
            Operator(line.type, line.name, inputs, outputs, line.params, {}, line.labels, number)
        )

    def check_counts(self, n_operators: int, n_operands: int, file: str) -> None:
        """Refuse a file that ended too early, or has wrong counts in its header."""
        found = len(self.file.declarations)
        if found != n_operators:
            raise ParamSyntaxError("operators are missing", where=file, found=found, expected=n_operators)
        if len(self._made) != n_operands:
            raise ParamSyntaxError(
                "wrong operand count",
                where=_place(file, 2),
                found=n_operands,
                expected=f"{len(self._made)} as made below",
            )
        if not self._has_output:
            raise ParamSyntaxError("the graph has no output", where=file, expected="a pnnx.Output")

    def _use(self, operand: str) -> str:
        if operand not in self._made:
            raise ParamSyntaxError("an operand is used before it is produced", found=quoted(operand))
        return self._made[operand]

    def _make(self, operand: str) -> str:
        if operand in self._made:
            raise ParamSyntaxError("an operand is produced twice", found=quoted(operand))
        return self._made.setdefault(operand, operand)

    def _announce(self, operand: str, text: str) -> None:
        known = self._announced.get(operand)
        if known is not None and known[0] == text:
            return
        try:
            announced = parse_annotation(text)
        except ParamSyntaxError as error:
            raise error.at(f"annotation of {quoted(operand)}") from None
        if known is None:
            self._announced[operand] = text, announced
            self._annotate(self._made[operand], announced)
        elif known[1] != announced:
            raise ParamSyntaxError(
                f"operand {quoted(operand)} is annotated in two ways", found=announced, expected=f"{known[1]} as before"
            )

    def _annotate(self, operand: str, announced: Announcement) -> None:
        graph = self.file.graph
        if announced.code == "null":
            graph.untyped[operand] = announced.shape
            return
        graph.annotations[operand] = TensorSpec(announced.shape, DTYPES[announced.code])
        if announced.code == "c32":
            graph.complex32.add(operand)

    def _declare(self, line: Line) -> None:
        for key in line.declarations:
            member = f"{line.name}.{key}"
            # Operators of one name have members of one name, in their order; other clashes would mix them up.
            if self._members.setdefault(member, line.name) != line.name:
                raise ParamSyntaxError("two attributes have the same name in the archive", found=quoted(member))
        self.file.declarations.append(line.declarations)


def _decode(data: bytes, file: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        kind = kind_of_file(data[:64])
        if kind is not None and not data.startswith(MAGIC.encode()):
            raise ParamSyntaxError("not a PNNX file", where=file, found=kind, expected="the text of a pair") from None
        where = _place(file, data.count(b"\n", 0, error.start) + 1)
        raise ParamSyntaxError("not UTF-8", where=where, found=f"byte 0x{data[error.start]:02x}") from None
    if control := _CONTROL.search(text):
        where = _place(file, text.count("\n", 0, control.start()) + 1)
        raise ParamSyntaxError("a control character", where=where, found=repr(control[0]), expected="text")
    return text


def _numbered_lines(text: str, file: str) -> Iterator[tuple[int, str]]:
    start, number = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end - start > MAX_LINE:
            found, expected = f"{end - start:,} characters", f"at most {MAX_LINE:,}"
            raise ParamSyntaxError("the line is too long", where=_place(file, number), found=found, expected=expected)
        yield number, text[start:end]
        start, number = end + 1, number + 1


def _parse_header(lines: Iterator[tuple[int, str]], file: str) -> tuple[int, int]:
    _, magic = next(lines, (1, ""))
    if magic.rstrip(" \t\r") != MAGIC:
        raise ParamSyntaxError("not a PNNX file", where=_place(file, 1), found=quoted(magic), expected=MAGIC)
    _, text = next(lines, (2, ""))
    counts = _COUNTS.fullmatch(text)
    if counts is None:
        expected = "an operator count and an operand count"
        raise ParamSyntaxError("the counts are malformed", where=_place(file, 2), found=quoted(text), expected=expected)
    return int(counts[1]), int(counts[2])


def _check_blank(text: str, n_operators: int, file: str, number: int) -> None:
    if text.strip(" \t\r"):
        expected = f"the {n_operators} operators line 2 counts"
        raise ParamSyntaxError("too many lines", where=_place(file, number), found=quoted(text), expected=expected)


def _place(file: str, number: int) -> str:
    return f"{file} line {number}"
