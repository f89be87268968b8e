"""Unmodified pages of a library are released and read again later; pages changed by the loader stay."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.compiler.codegen import memory_release, object_code
from engine.compiler.codegen.host import describe
from engine.compiler.codegen.memory_release import is_unwritten, library_pages, release_unused

SIZE = 64 * mmap.PAGESIZE
NAME = "libof_this_test"

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

Library = Callable[[bool], np.ndarray]  # type: ignore[type-arg]


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """Map a file as the loader does: privately, read-only in the end, modified before that or not."""
    places: list[int] = []

    def mapped(is_written: bool) -> np.ndarray:  # type: ignore[type-arg]
        path = tmp_path / f"{NAME}{len(places)}.so"
        path.write_bytes(b"\7" * SIZE)
        with path.open("rb") as file:
            place = libc.mmap(None, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, file.fileno(), 0)
        places.append(place)
        content = np.frombuffer((ctypes.c_ubyte * SIZE).from_address(place), np.uint8)
        if is_written:
            content[3 * mmap.PAGESIZE] = 9
        assert libc.mprotect(place, SIZE, mmap.PROT_READ) == 0
        return content

    yield mapped
    for place in places:
        libc.munmap(place, SIZE)


def resident_bytes(content: np.ndarray) -> int:  # type: ignore[type-arg]
    """Return the resident bytes of the mapping that begins there."""
    text = Path("/proc/self/smaps").read_text().split(f"{content.ctypes.data:x}-", 1)[1]
    return int(text.split("Rss:", 1)[1].split()[0]) << 10


def test_pages_that_are_the_files_own_are_given_back_and_found_again(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = library(False)
    assert int(content.sum()) == 7 * SIZE and resident_bytes(content) == SIZE
    monkeypatch.setattr(memory_release, "library_pages", lambda: library_pages(NAME))
    release_unused()
    assert resident_bytes(content) == 0
    assert int(content.sum()) == 7 * SIZE


def test_a_page_that_was_written_to_keeps_all_of_them(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    content = library(True)
    monkeypatch.setattr(memory_release, "library_pages", lambda: library_pages(NAME))
    release_unused()
    assert content[3 * mmap.PAGESIZE] == 9 and int(content.sum()) == 7 * SIZE + 2


def test_only_such_files_are_looked_at(library: Library) -> None:
    clean, written = library(False), library(True)
    _ = clean.sum(), written.sum()
    found = dict(library_pages(NAME))
    assert {each.ctypes.data for each in (clean, written)} <= found.keys()
    assert [is_unwritten(each.ctypes.data, each.ctypes.data + SIZE) for each in (clean, written)] == [True, False]
    assert not list(library_pages("no library has this name"))


def test_a_system_that_does_not_say_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_release, "_MAPS", tmp_path / "none")
    release_unused()
    monkeypatch.undo()
    monkeypatch.setattr(memory_release, "_PAGES", tmp_path / "none")
    release_unused()


def test_it_is_given_back_after_llvm_has_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []  # those of other threads too: who compiles behind may be the one to give back
    monkeypatch.setattr(object_code, "release_unused", lambda: calls.append(1))
    object_code.assembly("define void @f() {\n ret void\n}\n", describe("sse"))
    object_code.release_memory()
    assert calls
