"""Whatever a name stands for, opening it neither waits nor takes memory without end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import EngineError, read_file
from engine.memory.files import open_regular

LIMIT = 1000


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def ring(path: Path) -> None:
    path.with_suffix(".other").symlink_to(path)
    path.symlink_to(path.with_suffix(".other"))


STRANGE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": bind,
    "folder": Path.mkdir,
    "ring of links": ring,
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to a folder": lambda path: path.symlink_to(path.parent),
    "link to a pipe": lambda path: (os.mkfifo(path.with_suffix(".pipe")), path.symlink_to(path.with_suffix(".pipe"))),
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "too large": lambda path: path.write_bytes(bytes(LIMIT + 1)),
    "vast and empty": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_ordinary_file_is_refused_by_its_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "name"
    STRANGE[kind](path)
    with pytest.raises(EngineError) as caught:
        read_file(path, LIMIT)
    assert caught.value.where == "name"
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("path", ["x\0y", "/dev/null/x", "y" * 300, "\udcff", ""])
def test_a_path_that_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(EngineError):
        read_file(path, LIMIT)


def test_a_file_up_to_the_limit_is_read_and_so_is_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * LIMIT)
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "file", LIMIT) == read_file(tmp_path / "link", LIMIT) == b"x" * LIMIT
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "link", follow=False)


def test_a_file_that_states_no_size_is_read_up_to_the_limit() -> None:
    """As those of /proc do."""
    assert read_file("/proc/self/status", 1 << 20).startswith(b"Name:")
    with pytest.raises(EngineError, match="too large"):
        read_file("/proc/self/status", 10)


def test_a_file_that_turns_into_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Whenever it happens: between two looks as well."""
    path, pipe, file = tmp_path / "name", tmp_path / "pipe", tmp_path / "file"
    stop = threading.Event()

    def turn() -> None:
        while not stop.is_set():
            for make in (lambda: file.write_bytes(b"1"), lambda: os.mkfifo(pipe)):
                make()
                os.replace(file if file.exists() else pipe, path)

    thread = threading.Thread(target=turn)
    path.write_bytes(b"1")
    thread.start()
    try:
        for _ in range(300):
            try:
                assert read_file(path, LIMIT) in (b"", b"1")
            except EngineError as error:
                assert error.problem in ("not a regular file", "the file does not exist")
    finally:
        stop.set()
        thread.join()
