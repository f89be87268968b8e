"""Tests of Mermaid output, whose lines are simple enough for regular expressions."""

from __future__ import annotations

import html
import re

import pytest

from app.render import render
from tests.app.render.build import HOSTILE_TEXTS, hostile, profiled, residual

LINE = re.compile(
    r'  n\d+\["[A-Za-z0-9 ,.:=+\-/()×→·…#;<>]*"\]|  n\d+ --> n\d+'
    r"|  classDef [a-z]+ fill:#[0-9a-f]{6},color:#[0-9a-f]{6},stroke:none|  class (n\d+,?)+ [a-z]+"
)


def labels(text: str) -> list[str]:
    """Return labels with their entities resolved."""
    return [
        html.unescape(re.sub(r"#(\d+);", r"&#\1;", label)) for label in re.findall(r'^  n\d+\["(.*)"\]$', text, re.M)
    ]


@pytest.mark.parametrize("description", [residual(), profiled(), hostile()], ids=["residual", "profiled", "hostile"])
def test_every_line_is_of_the_grammar(description: dict[str, object]) -> None:
    first, *lines = render(description, "mermaid").splitlines()
    assert first == "flowchart TD"
    assert not [line for line in lines if not LINE.fullmatch(line)]


def test_the_only_markup_in_labels_is_ours() -> None:
    text = render(hostile(), "mermaid")
    assert set(re.findall(r"<[^>]*>", "".join(re.findall(r'\["(.*)"\]', text)))) == {"<br/>"}


def test_labels_say_type_name_parameters_and_shape() -> None:
    assert (
        labels(render(residual(), "mermaid"))[1] == "nn.Conv2d<br/>conv<br/>3×3, 3→4, stride 2, padding 1<br/>1×4×8×8"
    )


def test_hostile_texts_stay_readable() -> None:
    assert labels(render(hostile(), "mermaid"))[1].startswith(HOSTILE_TEXTS[0])


def test_edges_are_the_operands() -> None:
    edges = re.findall(r"n(\d+) --> n(\d+)", render(residual(), "mermaid"))
    assert [f"{a}{b}" for a, b in edges] == ["01", "13", "14", "24", "34", "45", "56", "56", "67"]
