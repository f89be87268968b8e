"""Only machine code that this user or root owns and no other user can write to is run; special files never block."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.compiler.cache.cache import SUFFIX
from tests.engine.compiler.cache.keeping import X, compiled, convolution, entries, is_cached, kept

OTHER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def right() -> np.ndarray:  # type: ignore[type-arg]
    return compiled(None).run([X])[0]


def is_used(folder: Path) -> bool:
    """Return whether a start loads its code from the folder, after checking the answer."""
    made = compiled(folder)
    np.testing.assert_array_equal(made.run([X])[0], right())
    return is_cached(made)


def test_a_folder_that_is_made_is_this_users_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = kept(tmp_path / "new" / "cache")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o2775, 0o702])
def test_inside_a_folder_writable_by_others_a_private_one_is_used(mode: int, tmp_path: Path) -> None:
    whole = kept(tmp_path / "good").read_bytes()
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / entries(tmp_path / "good")[0].name).write_bytes(whole)
    folder.chmod(mode)
    assert not is_used(folder)
    assert is_used(folder)
    (private,) = [path for path in folder.iterdir() if path.is_dir()]
    assert private.stat().st_mode & 0o777 == 0o700
    assert len(entries(private)) == 1


@pytest.mark.parametrize("kind", ["link", "file", "open to all", "another user's"])
def test_a_private_folder_created_by_another_user_is_not_used(kind: str, tmp_path: Path) -> None:
    if kind == "another user's" and os.geteuid() != 0:
        pytest.skip("only root may give files away")
    good = kept(tmp_path / "good").parent
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    private = folder / f"private-{os.geteuid()}"
    if kind == "link":
        private.symlink_to(good)
    elif kind == "file":
        private.write_text("")
    else:
        shutil.copytree(good, private)
        private.chmod(0o777 if kind == "open to all" else 0o700)
        if kind == "another user's":
            os.chown(private, OTHER, OTHER)
    assert not is_used(folder)
    assert not is_used(folder)


@as_root
def test_a_folder_of_another_user_is_not_used_and_costs_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = kept(tmp_path / "cache").parent
    os.chown(folder, OTHER, OTHER)
    assert not is_used(folder)
    assert not is_used(folder)
    (line,) = caplog.messages
    assert "it belongs to another user" in line


@pytest.mark.parametrize("how", ["another user's", "open to its group", "open to all"])
def test_an_entry_writable_by_others_is_compiled_anew(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "another user's" and os.geteuid() != 0:
        pytest.skip("only root may give files away")
    path = kept(tmp_path / "cache")
    if how == "another user's":
        os.chown(path, OTHER, OTHER)
    else:
        path.chmod(0o664 if how == "open to its group" else 0o646)
    assert not is_used(path.parent)
    assert "removed and compiled anew" in caplog.text
    assert is_used(path.parent)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


def hidden_elsewhere(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


STRANGE: dict[str, Callable[[Path], object]] = {
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "socket": lambda path: (path.unlink(), bind(path)),
    "link to an entry": hidden_elsewhere,
    "link to a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "vast hole": lambda path: os.truncate(path, 1 << 40),
    "hole": lambda path: os.truncate(path, 1 << 31),
    "nothing": lambda path: os.truncate(path, 0),
    "unreadable": lambda path: path.chmod(0),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_special_files_do_not_block_and_are_replaced(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept(tmp_path / "cache")
    monkeypatch.chdir(path.parent)
    STRANGE[kind](path)
    first = is_used(path.parent)
    assert first == (kind == "unreadable" and os.geteuid() == 0)
    assert is_used(path.parent)


def test_a_folder_in_the_place_of_an_entry_costs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    path = kept(tmp_path / "cache")
    path.unlink()
    path.mkdir()
    for _ in range(2):
        assert not is_used(path.parent)
    assert len([line for line in caplog.messages if "cannot be written" in line]) == 1


@pytest.mark.parametrize("kind", ["pipe", "device", "ring"])
def test_a_path_that_is_not_a_folder_costs_one_line(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cache"
    if kind == "pipe":
        os.mkfifo(folder)
    else:
        folder.symlink_to("/dev/null" if kind == "device" else folder)
    for _ in range(2):
        assert not is_used(folder)
    assert len(caplog.messages) == 1


def test_old_entries_are_removed_whatever_else_is_in_the_folder(tmp_path: Path) -> None:
    folder = kept(tmp_path / "cache").parent
    os.mkfifo(folder / f"pipe{SUFFIX}")
    (folder / f"folder{SUFFIX}").mkdir()
    (folder / f"link{SUFFIX}").symlink_to("/dev/zero")
    compiled(folder, convolution(1), cache_max_bytes=20_000).run([X])
    assert (folder / f"folder{SUFFIX}").is_dir()
