"""Graph to text, in today's dialect and the converter's own layout.

The text is parsed again before it is returned, so that a graph the format cannot express (a string that would read as a
number, a name with a blank) is refused instead of altered.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import ParamSyntaxError, quoted
from engine.pnnx.graph import Graph, Operator, same, written_names
from engine.pnnx.param import MAGIC, parse_param
from engine.pnnx.shapes import Announcement, Declaration
from engine.pnnx.values import format_parameter
from engine.tensor import CODES


def format_param(graph: Graph, file: str = "graph") -> str:
    """Return the text file of a graph.

    Args:
        graph: any graph; it need not come from a file. Of attributes only shape and dtype are used.
        file: name of the future file, for messages.

    Raises:
        ParamSyntaxError: when parsing the text would not restore this graph.
        WeightsError: for an attribute of unknown dtype.
    """
    announced = _format_annotations(graph, file)
    n_operands = sum(len(operator.outputs) for operator in graph.operators)
    lines = [MAGIC, f"{len(graph.operators)} {n_operands}"]
    names = written_names(graph.operators)
    lines += (_format_line(*pair, announced) for pair in zip(graph.operators, names, strict=True))
    text = "\n".join((*lines, ""))
    _check(graph, text, file)
    return text


def _format_annotations(graph: Graph, file: str) -> dict[str, str]:
    texts = {operand: str(Announcement(shape, "null")) for operand, shape in graph.untyped.items()}
    for operand, spec in graph.annotations.items():
        code = "c32" if operand in graph.complex32 else CODES.get(spec.dtype)
        if code is None:
            where = f"{file}: annotation of {quoted(operand)}"
            raise ParamSyntaxError("the format cannot express the dtype", where=where, found=spec.dtype)
        texts[operand] = str(Announcement(spec.shape, code))
    return texts


def _format_line(operator: Operator, name: str, announced: dict[str, str]) -> str:
    if operator.subgraphs:
        found = ", ".join(operator.subgraphs)
        raise ParamSyntaxError(
            "a pair cannot hold an operator with subgraphs", where=quoted(operator.name), found=found
        )
    head = f"{operator.type:<24} {name:<24} {len(operator.inputs)} {len(operator.outputs)}"
    return " ".join((head, *operator.inputs, *operator.outputs, *_format_entries(operator, announced)))


def _format_entries(operator: Operator, announced: dict[str, str]) -> Iterator[str]:
    for key in sorted(operator.params):
        yield f"{key}={format_parameter(operator.params[key])}"
    for key in sorted(operator.attributes):
        attribute = operator.attributes[key]
        yield f"@{key}={Announcement(attribute.shape, attribute.code)}"
    for label, operand in zip(operator.labels, operator.inputs, strict=False):
        if label is not None:
            yield f"${label}={operand}"
    for operand in (*operator.inputs, *operator.outputs):
        if operand in announced:
            yield f"#{operand}={announced[operand]}"


def _check(graph: Graph, text: str, file: str) -> None:
    try:
        read = parse_param(text.encode("utf-8"), file)
    except UnicodeEncodeError as error:
        raise ParamSyntaxError("not a text", where=file, found=quoted(text[error.start : error.end])) from None
    for index, operator in enumerate(graph.operators):
        differences = _differences(operator, read.graph.operators[index], read.declarations[index])
        if part := next(differences, None):
            where = f"{file}: {quoted(operator.name)}"
            raise ParamSyntaxError(f"{part} would not be read as it is written", where=where)
    if any(getattr(graph, part) != getattr(read.graph, part) for part in ("annotations", "untyped", "complex32")):
        raise ParamSyntaxError("an annotation cannot be kept: it names no operand, or contradicts itself", where=file)


def _differences(mine: Operator, read: Operator, declared: dict[str, Declaration]) -> Iterator[str]:
    for part in ("type", "name", "inputs", "outputs", "labels"):
        if getattr(mine, part) != getattr(read, part):
            yield part
    if mine.params.keys() != read.params.keys():
        yield "a parameter"
    if mine.attributes.keys() != declared.keys():
        yield "an attribute"
    for key, value in mine.params.items():
        if not same(value, read.params.get(key)):
            yield f"parameter {quoted(key)} = {quoted(str(value))}"
