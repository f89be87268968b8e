"""Plain words: how docstrings begin, and words that the glossary has replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCES = ("app", "engine", "exporter", "clients", "benchmarks")
TREE = (*SOURCES, "deploy", "docs", "examples", "model_store", "tests")
SUFFIXES = {".css", ".html", ".js", ".md", ".py", ".toml", ".yaml", ".yml"}
BEGINNING = re.compile(r"\s*(What|Whether|Who|Whoever|Where)\b")
MAY_BEGIN = re.compile(rf'"""{BEGINNING.pattern}')
# Words without a usual meaning here, also as parts of names; docs/glossary.md has the terms to use.
REPLACED = (
    "birth", "blueprints", "deed", "errand", "foreseen", "funnel", "inlet", "nobody", "phantom", "quickness", "setback",
    "shelf", "sideline", "sidelined", "somebody", "switchboard", "waist", "whoever", "widening",
)  # fmt: skip
WORD = re.compile(rf"(?<![a-z])({'|'.join(REPLACED)})s?(?![a-z])", re.IGNORECASE)


def files(folders: tuple[str, ...], suffixes: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    for path in (*ROOT.glob("*"), *(each for folder in folders for each in (ROOT / folder).rglob("*"))):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in suffixes and path.is_file():
            yield name, path.read_text()


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.lineno, str(first.value.value)


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    wrong = [
        f"{name}:{line}: {found[:60]}"
        for name, text in files(SOURCES, {".py"})
        if MAY_BEGIN.search(text)
        for line, found in docstrings(text)
        if BEGINNING.match(found)
    ]
    assert not wrong, "\n".join(wrong)


def test_replaced_words_do_not_come_back() -> None:
    skipped = ("CHANGELOG.md", "tests/messages/", Path(__file__).relative_to(ROOT).as_posix())
    wrong = [
        f"{name}:{number}: {found[0]}"
        for name, text in files(TREE, SUFFIXES)
        if not name.startswith(skipped) and any(word in text.lower() for word in REPLACED)
        for number, line in enumerate(text.splitlines(), start=1)
        for found in WORD.finditer(line)
    ]
    assert not wrong, "\n".join(wrong)
