"""Whatever is done to the files of a model, what was loaded stays what it was, and what is loaded was there once."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import EngineError, pnnx
from engine.tensor import Array
from tests.engine.pnnx.build import members, param, save
from tests.held import open_files

COUNT = 3 << 18
LINES = [f"pnnx.Attribute a 0 1 0 @data=({COUNT})f32", "pnnx.Output out 1 0 0"]


def content(value: int) -> bytes:
    return members({"a.data": np.full(COUNT, value, np.float32).tobytes()})


def write_over(path: Path) -> None:
    """As cp does with a file that is there."""
    with path.open("r+b") as file:
        file.write(content(2))


CHANGES: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: os.truncate(path, 0),
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "written over": write_over,
    "copied over": lambda path: path.write_bytes(content(2)),
    "emptied with a hole": lambda path: (os.truncate(path, 0), os.truncate(path, len(content(1)))),
    "replaced": lambda path: (path.with_suffix(".new").write_bytes(content(2)), path.with_suffix(".new").replace(path)),
    "removed": lambda path: path.unlink(),
    "closed to all": lambda path: path.chmod(0),
}


@pytest.fixture(params=["copied", "cloned"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder, once more on a file system that clones files, where there is one."""
    if request.param == "copied":
        return tmp_path
    (tmp_path / "one").write_bytes(bytes(4096))
    if subprocess.run(["cp", "--reflink=always", "one", "two"], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("this file system does not clone files")
    return tmp_path


def values(graph: pnnx.Graph) -> Array:
    return graph.operators[0].attributes["data"].data


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_loaded_stays_what_it_was(change: str, folder: Path) -> None:
    path = save(folder, param(LINES), content(1))
    graph = pnnx.read(path)
    CHANGES[change](folder / "model.pnnx.bin")
    assert (values(graph) == 1).all()


def test_what_is_loaded_while_files_change_was_there_once(tmp_path: Path) -> None:
    """Weights are all of one pair, though it is written in pieces; or they are refused."""
    path, stop = save(tmp_path, param(LINES), content(1)), threading.Event()

    def write() -> None:
        while not stop.is_set():
            for value in (1, 2):
                shutil.copyfile(tmp_path / f"{value}", tmp_path / "model.pnnx.bin")

    for value in (1, 2):
        (tmp_path / f"{value}").write_bytes(content(value))
    thread = threading.Thread(target=write)
    thread.start()
    outcomes = set()
    try:
        for _ in range(60):
            try:
                found = np.unique(values(pnnx.read(path, verify=True)))
                outcomes.add(tuple(found.tolist()))
            except EngineError:
                continue
    finally:
        stop.set()
        thread.join()
    assert outcomes <= {(1.0,), (2.0,)}


def test_files_that_keep_changing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, param(LINES), content(1))
    take = pnnx.pair.take_file
    monkeypatch.setattr(pnnx.pair, "take_file", lambda which: (take(which), os.utime(path))[0])
    with pytest.raises(EngineError, match=r"^model.pnnx.param and model.pnnx.bin: the file changes while it is read$"):
        pnnx.read(path)


def test_a_pair_that_is_replaced_between_its_two_files_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, param(LINES), content(1))
    read, turns = pnnx.pair.read_text_file, iter([True])

    def replaced_afterwards(which: Path) -> bytes:
        text: bytes = read(which)
        if next(turns, False):
            save(tmp_path, param([f"pnnx.Attribute b 0 1 0 @data=({COUNT})f32", LINES[1]]), content(2))
            (tmp_path / "model.pnnx.bin").write_bytes(content(2).replace(b"a.data", b"b.data"))
        return text

    monkeypatch.setattr(pnnx.pair, "read_text_file", replaced_afterwards)
    graph = pnnx.read(path)
    assert graph.operators[0].name == "b"
    assert (values(graph) == 2).all()


def test_no_descriptor_is_kept(tmp_path: Path) -> None:
    path = save(tmp_path, param(LINES), content(1))
    graphs = [pnnx.read(path) for _ in range(5)]
    assert open_files(tmp_path) == 0
    assert len(graphs) == 5


def test_a_vast_file_of_nothing_is_refused_without_filling_memory(tmp_path: Path) -> None:
    path = save(tmp_path, param(LINES), content(1))
    for size in (1 << 34, 1 << 44, 1 << 62):
        try:
            os.truncate(tmp_path / "model.pnnx.bin", size)
        except OSError:  # the file system has no such sizes
            continue
        with pytest.raises(EngineError):
            pnnx.read(path)


def test_weights_with_holes_are_read_as_zeros(tmp_path: Path) -> None:
    whole = members({"a.data": bytes(4 * COUNT)})
    path = save(tmp_path, param(LINES), b"")
    with (tmp_path / "model.pnnx.bin").open("wb") as file:
        file.write(whole[:100])
        file.seek(len(whole) - 4096)
        file.write(whole[-4096:])
    assert (values(pnnx.read(path, verify=True)) == 0).all()
