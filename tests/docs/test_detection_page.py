"""The page of detection: its commands work as pasted."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.docs.pages import ROOT, Reader, differences, page


def test_the_commands_do_what_the_page_says(reader: Reader) -> None:
    shutil.copytree(ROOT / "model_store", "model_store")
    Path("docs").symlink_to(ROOT / "docs")
    assert list(differences(page("docs/detection.md"), reader, "console")) == []
