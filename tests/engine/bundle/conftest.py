"""A bundle, written once; every test gets a copy it may damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import engine
from engine.bundle import MANIFEST, StatedFile
from engine.bundle.manifest import Manifest, parse
from engine.compiler.bundling import writing
from engine.compiler.bundling.writing import hash_file
from tests.engine.compiler.cache.keeping import convolution


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a bundle of a convolution, for batches of one and of two."""
    folder = tmp_path_factory.mktemp("bundles") / "net.bundle"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "is_unchanged", lambda: True)
        session = engine.Session(convolution(), cache=None, threads=1)
        session.save_bundle(folder, batches=[2], name="net", files={"labels.txt": b"one\ntwo\n"})
    yield folder


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "net.bundle"))


def manifest(folder: Path) -> Manifest:
    return parse((folder / MANIFEST).read_bytes())


def restate(folder: Path, change: Callable[[Manifest], Manifest] | None = None, **changed: Any) -> None:
    """Write a valid manifest for the files as they are, as an attacker can."""
    known = manifest(folder)
    files = {name: StatedFile((folder / name).stat().st_size, hash_file(folder / name)) for name in known.files}
    known = replace(known, files=files, **changed)
    (folder / MANIFEST).write_bytes((change(known) if change else known).print())
