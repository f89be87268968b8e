"""The page of pipelines: its first example works as pasted."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Reader, blocks, commands, fits, page

PAGE = "docs/pipelines.md"


def test_the_first_example_does_what_the_page_says(reader: Reader) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    shutil.copytree(ROOT / "model_store", "model_store")
    Path("docs").symlink_to(ROOT / "docs")
    first, *rest = blocks(page(PAGE))
    Path("model_store/cards").mkdir()
    Path(re.findall(r"`([\w/]+\.toml)`", first.follows)[-1]).write_text(first.text, encoding="utf-8")
    shown = [each for block in rest if block.language == "console" for each in commands(block)]
    assert len(shown) == 4
    for command, expected in shown:
        printed = re.sub(r"^.* \.\.\. \d+ s\n", "", reader.console(command), flags=re.M)  # progress
        assert fits(expected, printed), printed
