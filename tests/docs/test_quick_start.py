"""Tests that the commands of docs/quick-start.md, except installations, print what the page shows."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import ROOT, Block, Reader, blocks, commands, fits, page
from tests.engine.pnnx.build import pair
from tests.patience import until

PAGE = "docs/quick-start.md"
HAS_EXPORT = find_spec("torch") is not None and find_spec("pnnx") is not None


def write_file(block: Block) -> None:
    """Write a block to the last file that the text before it names."""
    Path(re.findall(r"[`*]([\w/]+\.\w+)[`*]", block.follows)[-1]).write_text(block.text, encoding="utf-8")


def place_pair(folder: Path) -> None:
    """Put the graph of the page's network in the store, where the export extra is not installed."""
    (folder / "1").mkdir(parents=True)
    lines = [
        "pnnx.Input measurements 0 1 0 #0=(1,4)f32",
        "nn.Linear layers.0 1 1 0 1 bias=False in_features=4 out_features=3 @weight=(3,4)f32 #0=(1,4)f32 #1=(1,3)f32",
        "pnnx.Output out0 1 0 1 #1=(1,3)f32",
    ]
    made = pair(folder / "1", lines, {"layers.0.weight": np.ones((3, 4), np.float32).tobytes()})
    assert made.parent == folder / "1"


def test_the_page_does_what_it_says(reader: Reader) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    shutil.copytree(ROOT / "model_store", "model_store")
    for block in blocks(page(PAGE)):
        if block.language == "toml" or (block.language == "python" and "Save this as" in block.follows):
            write_file(block)
        for command, shown in commands(block) if block.language == "console" else ():
            if command.startswith("pnnx-serve export") and not HAS_EXPORT:
                place_pair(Path("model_store/flowers"))
            elif command.startswith("curl"):  # the server looks at its store every two seconds
                until(lambda command=command, shown=shown: fits(shown, reader.console(command)))  # type: ignore[misc]
            else:
                printed = re.sub(r"^.* \.\.\. \d+ s\n", "", reader.console(command), flags=re.M)  # progress
                assert fits(shown, printed), printed
