"""Tests of DOT output, parsed by a reader of the published grammar."""

from __future__ import annotations

import re
from typing import Any

from app.render import render
from tests.app.render.build import HOSTILE_TEXTS, hostile, profiled, residual

TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|(->|[{}\[\];=,])|([A-Za-z_][A-Za-z0-9_]*|[0-9]+)|\s+|(.)', re.DOTALL)


def statements(text: str) -> list[list[str]]:
    """Return the statements inside the braces as tokens; quoted texts begin with a quote and are unescaped once."""
    tokens: list[str] = []
    for match in TOKEN.finditer(text):
        assert match[4] is None, match[4]
        if match[1] is not None:
            tokens.append('"' + match[1].replace('\\"', '"').replace("\\\\", "\\"))
        elif not match[0].isspace():
            tokens.append(match[0])
    assert (tokens[0], tokens[2], tokens[-1]) == ("digraph", "{", "}")
    body, result = tokens[3:-1], [[]]
    for token in body:
        if token == ";":
            result.append([])
        else:
            result[-1].append(token)
    return [statement for statement in result if statement]


def nodes(description: dict[str, Any]) -> dict[str, list[str]]:
    rows = statements(render(description, "dot"))
    return {row[0]: row[1:] for row in rows if re.fullmatch(r"n\d+", row[0]) and row[1] == "["}


def test_nodes_are_the_operators_in_order() -> None:
    assert list(nodes(residual())) == [f"n{i}" for i in range(8)]


def test_edges_are_the_operands() -> None:
    rows = statements(render(residual(), "dot"))
    assert [(row[0], row[2]) for row in rows if row[1] == "->"] == [
        ("n0", "n1"), ("n1", "n3"), ("n1", "n4"), ("n2", "n4"), ("n3", "n4"), ("n4", "n5"), ("n5", "n6"), ("n5", "n6"),
        ("n6", "n7"),
    ]  # fmt: skip


def test_a_label_has_a_line_for_each_fact() -> None:
    label = nodes(profiled())["n1"][3]
    assert label == '"nn.Conv2d\\nconv\\n3×3, 3→4, stride 2, padding 1\\n1×4×8×8\\n100 µs (4.8 %)'


def test_hostile_texts_add_no_statement() -> None:
    rows = statements(render(hostile(), "dot"))
    count = len(HOSTILE_TEXTS) + 2
    assert len(rows) == 3 + count + (count - 1)
    assert all(row[0] in ("rankdir", "node", "edge") or re.fullmatch(r"n\d+", row[0]) for row in rows)


def test_backslashes_of_names_are_not_escapes() -> None:
    assert "\\\\N\\\\G\\\\l" in render(hostile(), "dot")
