"""Tests that mkdocs.yml has every page and that all links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT

SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
HOOKS = (ROOT / "docs/site_hooks.py").read_text(encoding="utf-8")
# Pages outside docs/, with their names on the site.
OUTSIDE = dict(re.findall(r'^    "([\w/.]+\.md)": "([\w.-]+)",$', HOOKS, re.M))
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
WORDS = re.compile(r"[^\w\- ]")


def named(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from named(value) if isinstance(value, list) else [value]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings; mkdocs and GitHub differ in runs of hyphens only."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[ -]+", "-", WORDS.sub("", heading.lower()).strip()) for heading in found}


def test_the_navigation_has_every_page_and_no_other() -> None:
    pages = {path.removeprefix("docs/") for path in DOCS if not path.startswith("docs/decisions/")}
    assert sorted(named(SITE["nav"])) == sorted(pages | set(OUTSIDE.values()))


def test_pages_of_the_site_that_lie_elsewhere_are_there() -> None:
    assert OUTSIDE and [path for path in OUTSIDE if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("name", sorted({*DOCS, *OUTSIDE}))
def test_links_of_the_page_lead_somewhere(name: str) -> None:
    path = ROOT / name
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
        file = path.parent / target if target else path
        assert file.exists(), f"{name}: {target}"
        assert not anchor or re.sub("-+", "-", anchor) in anchors(file), f"{name}: {target}#{anchor}"


def test_the_glossary_is_short_and_sorted() -> None:
    words = re.findall(r"^\| (?!word \|)([^|]+) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M)
    assert words == sorted(words) and 0 < len(words) <= 30


def test_words_of_the_glossary_are_used() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    files = [ROOT / path for path in DOCS if path != "docs/glossary.md"]
    text = "".join(path.read_text(encoding="utf-8") for path in [*files, *(ROOT / "engine").rglob("*.py")]).lower()
    assert [
        word
        for word in re.findall(r"^\| ([^|]+) \|", glossary, re.M)[1:]
        if word.replace(" ", "") not in text and word not in text and word.replace(" ", "_") not in text
    ] == []
