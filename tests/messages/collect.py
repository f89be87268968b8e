"""Collection of all messages that product code can raise, log or print.

A message is a string (literal, f-string or concatenation) that is passed to an exception, a logger, a warning or
``print``, or that becomes a reason: an argument, variable or result named ``problem``, ``reason``, ``remark`` and the
like. In f-strings each value is shown by its expression in braces.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FIXTURE: Final = Path(__file__).with_name("messages.txt")
SOURCES: Final = ("app", "engine", "exporter", "clients/python/pnnx_client")
_LOGGING: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "warn", "fail", "print"})
_REASONS: Final = re.compile(
    r"(^|_)(problem|reason|remark|message|why|advice|hint|failure|refusal|fault|warning)s?$", re.I
)
_ERRORS: Final = re.compile(r"(Error|Exception|Warning|Failed|Refused|refused|_refusal|_damaged|_absent|_not_ready)$")


def collect() -> list[str]:
    """Return all messages, each once, in alphabetical order."""
    found = set[str]()
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            found.update(_messages(ast.parse(path.read_text("utf-8"))))
    return sorted(found, key=lambda text: (text.lower(), text))


def _messages(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for value in _candidates(node):
            text = _text(value)
            if text is not None and len(text.split()) > 1:
                yield text


def _candidates(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a node that may be messages."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from _arguments(node.exc)
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _LOGGING or _ERRORS.search(name):
            yield from _arguments(node)
        else:
            yield from (each.value for each in node.keywords if each.arg and _REASONS.search(each.arg))
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(_REASONS.search(_name(each)) for each in targets):
            yield from _branches(node.value)
    elif isinstance(node, ast.FunctionDef) and _REASONS.search(node.name):
        for each in ast.walk(node):
            if isinstance(each, ast.Return | ast.Yield) and each.value is not None:
                yield from _branches(each.value)


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    for each in (*call.args, *(keyword.value for keyword in call.keywords)):
        yield from _branches(each)


def _branches(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _branches(node.body)
        yield from _branches(node.orelse)
    else:
        yield node


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.expr) -> str | None:
    """Return the template of a string expression, or None."""
    if isinstance(node, ast.Constant):
        return node.value.replace("\n", "\\n") if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [_text(each) if isinstance(each, ast.Constant) else _value(each) for each in node.values]
        return "".join(filter(None, parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(each) or "{" + ast.unparse(each) + "}" for each in (node.left, node.right)]
        return "".join(parts) if any(isinstance(_text(each), str) for each in (node.left, node.right)) else None
    return None


def _value(node: ast.expr) -> str:
    assert isinstance(node, ast.FormattedValue)
    return "{" + " ".join(ast.unparse(node.value).split()) + "}"
