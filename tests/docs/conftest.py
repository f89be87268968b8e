"""Fixture of a reader who types in the code of a page."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import engine
from tests.docs.pages import ROOT, Reader


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Provide a reader in an empty folder of a folder like a clone, with an active environment."""
    module = types.ModuleType("reader")
    monkeypatch.setitem(sys.modules, "reader", module)  # where dataclasses look for the names of annotations
    commands, folder = tmp_path / "bin", tmp_path / "play"
    for made in (commands, folder):
        made.mkdir()
    for name, arguments in (("python", ""), ("pnnx-serve", "-m app")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (commands / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PNNX_SERVE_")}
    environ |= {"PATH": f"{commands}:{environ['PATH']}", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    typist = Reader(module, environ)
    with engine.registry.extended():
        yield typist
    typist.close()
