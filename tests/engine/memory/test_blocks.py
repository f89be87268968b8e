"""Copies of a file's contents never change, wherever they lie; a copy on a disk takes no memory under pressure."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import RunCancelledError, SharedBlockServer
from engine.cancellation import cancelling
from engine.memory import blocks, shared_blocks
from engine.memory.blocks import TornError, is_mapped, release, spill_block
from engine.pnnx.files import take_file
from tests.held import open_files

SIZE = 6 << 20


def content(seed: int = 0, size: int = SIZE) -> bytes:
    return np.random.default_rng(seed).bytes(size)


@pytest.fixture(autouse=True)
def a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every folder lay on a disk: tests may run anywhere."""
    monkeypatch.setattr(blocks, "_kind_of_disk", lambda descriptor: 0xEF53)
    monkeypatch.setattr("engine.pnnx.files.clone_block", lambda *_: None)


def file(folder: Path, data: bytes) -> Path:
    path = folder / "weights"
    path.write_bytes(data)
    return path


def resident_bytes(array: Any) -> int:
    """Bytes of the mapping an address belongs to that this process holds."""
    held, is_part, address = 0, False, array.ctypes.data
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and ":" not in head:
            first, last = (int(each, 16) for each in head.split("-"))
            is_part = first <= address < last
        elif is_part and line.startswith("Rss:"):
            held += int(line.split()[1]) << 10
    return held


def test_nothing_done_to_the_file_reaches_the_copy(tmp_path: Path) -> None:
    data = content()
    path = file(tmp_path, data)
    block = take_file(path)
    assert is_mapped(block) and not block.flags.writeable
    with path.open("r+b") as out:
        out.write(content(1))
    assert block.tobytes() == data
    os.truncate(path, 0)
    assert block.tobytes() == data
    path.unlink()
    release(block)
    assert block.tobytes() == data


def test_nothing_is_left_in_the_folder_and_no_descriptor_is_kept(tmp_path: Path) -> None:
    path = file(tmp_path, content())
    block = take_file(path)
    assert os.listdir(tmp_path) == ["weights"]
    assert open_files(tmp_path) == open_files("/memfd:weights") == 0
    assert block.nbytes == SIZE


def test_pages_of_a_copy_on_a_disk_can_be_given_back(tmp_path: Path) -> None:
    block = take_file(file(tmp_path, content()))
    total = int(block.sum(dtype=np.int64))
    assert resident_bytes(block) >= SIZE
    release(block)
    assert resident_bytes(block) < SIZE // 4
    assert int(block.sum(dtype=np.int64)) == total


Room = namedtuple("Room", "f_bavail f_frsize")


def refuse(*_: Any) -> Any:
    raise OSError("refused")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("engine.memory.blocks._kind_of_disk", lambda descriptor: 0x01021994),
        ("engine.memory.blocks._kind_of_disk", lambda descriptor: 0),
        ("os.fstatvfs", lambda descriptor: Room(SIZE, 1)),
        ("os.posix_fallocate", refuse),
        ("os.sendfile", refuse),
    ],
    ids=["in memory", "of no known kind", "full", "no room set aside", "cannot be written"],
)
def test_where_no_disk_can_take_it_the_copy_lies_in_memory(
    name: str, instead: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name, instead)
    data = content()
    block = take_file(file(tmp_path, data))
    assert not is_mapped(block)
    assert block.tobytes() == data


def test_a_folder_that_may_not_be_written_to_leaves_that_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, content())
    with path.open("rb") as source:
        block = spill_block(source.fileno(), "/proc", SIZE)
        monkeypatch.setattr(tempfile, "tempdir", "/proc")
        assert spill_block(source.fileno(), "/proc", SIZE) is None
    assert block is not None and block.tobytes() == path.read_bytes()


def test_holes_take_no_time_and_a_file_larger_than_memory_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights"
    with path.open("wb") as out:
        out.seek(SIZE)
        out.write(b"end")
        out.truncate(2 * SIZE)
    sent: list[int] = []
    send = os.sendfile
    monkeypatch.setattr("os.sendfile", lambda *args: sent.append(1) or send(*args))  # type: ignore[func-returns-value]
    block = take_file(path)
    assert block[SIZE : SIZE + 3].tobytes() == b"end" and int(block.sum()) == sum(b"end")
    assert len(sent) == 1
    monkeypatch.setattr(blocks, "free_memory_bytes", lambda: SIZE)
    with path.open("rb") as source:
        assert spill_block(source.fileno(), str(tmp_path), 2 * SIZE) is None


def test_a_file_that_shrinks_while_it_is_copied_is_noticed(tmp_path: Path) -> None:
    path = file(tmp_path, content())
    with path.open("rb") as source, pytest.raises(TornError):
        spill_block(source.fileno(), str(tmp_path), SIZE + 1)


def test_copying_can_be_stopped(tmp_path: Path) -> None:
    path = file(tmp_path, content())
    with cancelling(lambda: True), pytest.raises(RunCancelledError):
        take_file(path)


@pytest.mark.parametrize("skip", [0, 100])
def test_a_part_of_memory_moves_to_a_disk_and_takes_memory_where_it_is_read(skip: int, tmp_path: Path) -> None:
    data = content(size=SIZE)
    block = np.frombuffer(mmap.mmap(-1, SIZE), np.uint8)
    block[:] = np.frombuffer(data, np.uint8)
    assert blocks.move_to_disk(block[skip:], str(tmp_path))
    inner = block[mmap.PAGESIZE if skip else 0 :]
    assert resident_bytes(inner) == 0
    assert inner[SIZE // 2] == data[SIZE // 2 + (mmap.PAGESIZE if skip else 0)]
    assert 0 < resident_bytes(inner) < SIZE // 2  # a page of 2 MiB, where the file has those
    assert block.tobytes() == data
    assert not os.listdir(tmp_path) and open_files(tmp_path) == 0


def test_what_no_disk_can_take_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = content(size=SIZE)
    block = np.frombuffer(mmap.mmap(-1, SIZE), np.uint8)
    block[:] = np.frombuffer(data, np.uint8)
    assert not blocks.move_to_disk(block[: mmap.PAGESIZE - 1], str(tmp_path))
    assert not blocks.move_to_disk(block[:0], str(tmp_path))
    for name, instead in (("os.pwrite", refuse), ("os.posix_fallocate", refuse), ("os.fstatvfs", lambda _: Room(1, 1))):
        with monkeypatch.context() as patch:
            patch.setattr(name, instead)
            assert not blocks.move_to_disk(block, str(tmp_path))
    monkeypatch.setattr(blocks, "_kind_of_disk", lambda descriptor: 0)
    assert not blocks.move_to_disk(block, str(tmp_path))
    assert resident_bytes(block) == SIZE and block.tobytes() == data


@pytest.mark.parametrize("is_a_disk", [True, False])
def test_workers_that_share_memory_have_one_file_or_one_block(
    is_a_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_a_disk:
        monkeypatch.setattr(blocks, "_kind_of_disk", lambda descriptor: 0)
    data = content()
    path = file(tmp_path, data)
    parent = SharedBlockServer()
    ends = [parent.connect() for _ in range(2)]
    try:
        taken = []
        for end in ends:
            shared_blocks.share_memory(end)
            taken.append(take_file(path))
        assert [each.tobytes() for each in taken] == [data] * 2
        assert parent.blocks == 1 and len({memory(each) for each in taken}) == 1
        assert ("memfd" in memory(taken[0])) != is_a_disk
        assert open_files(tmp_path) == is_a_disk  # the parent's, which is this process too
        release(taken[0])
        assert taken[0].tobytes() == data
        with path.open("r+b") as out:
            out.write(b"others")
        assert taken[1].tobytes() == data
    finally:
        shared_blocks._clients.clear()
        del taken
        for end in ends:
            end.close()


def memory(block: Any) -> str:
    """The file or the memory that an array lies in, as the system calls it."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= block.ctypes.data < end:
            return line.split(maxsplit=3)[3]
    raise AssertionError("not mapped")
