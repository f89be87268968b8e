"""docs/passes.md says what there is, and its code runs."""

from __future__ import annotations

import re
import types

import pytest

from engine.passes import PASSES
from tests.docs.pages import ROOT, Reader, differences, page

PAGE = "docs/passes.md"


def test_every_pass_has_its_section_in_the_order_they_run() -> None:
    section = page(PAGE).partition("## The passes")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.M) == list(PASSES)


def test_the_code_runs_and_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert list(differences(page(PAGE), Reader(types.ModuleType("reader"), {}), "python")) == []


def test_files_it_names_are_there() -> None:
    named = re.findall(r"`((?:engine|tests)/[\w/]+\.py)`", page(PAGE))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
