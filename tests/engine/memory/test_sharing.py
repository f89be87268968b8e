"""Processes of one parent have one copy of what they all read; nobody can change it, and it goes with its users."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import Exchange
from engine.memory import sharing
from engine.memory.sharing import MIN_BYTES, _Link, share_memory, shared
from engine.tensor import Array
from tests.held import open_files


class Family(Exchange):
    """A parent whose children are in this process as well."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[socket.socket] = []

    def connect(self) -> socket.socket:
        self.ends.append(super().connect())
        return self.ends[-1]

    def child(self) -> _Link:
        return _Link(self.connect())


@pytest.fixture
def exchange() -> Iterator[Family]:
    family = Family()
    yield family
    sharing._links.clear()
    gc.collect()
    for end in family.ends:
        end.close()


def block(seed: int = 0, size: int = MIN_BYTES) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def inode(array: Array) -> str:
    """Which memory an address belongs to."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, mode, _, _, number, *_ = line.split()
        first, last = (int(each, 16) for each in span.split("-"))
        if first <= address < last:
            assert "w" not in mode
            return number
    raise AssertionError("not mapped")


def settle(link: _Link) -> None:
    """Come back when the parent has heard all that was said before."""
    assert link._ask(b"?" + bytes(32)) is None


def test_two_children_have_one_copy(exchange: Family) -> None:
    links = [exchange.child() for _ in range(2)]
    first, second = (link.exchange(block()) for link in links)
    assert inode(first) == inode(second) != "0"
    for each in (first, second):
        np.testing.assert_array_equal(each, block())
        assert not each.flags.writeable
    assert inode(links[0].exchange(block(1))) != inode(first)


def test_a_block_goes_with_its_last_user(exchange: Family) -> None:
    links = [exchange.child() for _ in range(2)]
    parts = [link.exchange(block())[100:200] for link in links for _ in range(2)]
    while parts:
        np.testing.assert_array_equal(parts.pop(), block()[100:200])
        gc.collect()
        for link in links:
            settle(link)
        assert exchange.blocks == bool(parts)


def test_what_a_child_used_goes_with_the_child(exchange: Family) -> None:
    link, other = exchange.child(), exchange.child()
    kept = [each.exchange(block(index)) for index, each in enumerate((other, link))]
    assert exchange.blocks == 2
    exchange.ends[1].close()
    for _ in range(1000):
        settle(link)
        if exchange.blocks == 1:
            break
    assert exchange.blocks == 1
    np.testing.assert_array_equal(kept[0], block(0))


def test_nobody_can_change_a_shared_block(exchange: Family) -> None:
    link = exchange.child()
    mine = link.exchange(block())
    (descriptor,) = exchange._blocks.values()
    with pytest.raises(PermissionError):
        os.truncate(descriptor, 0)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    np.testing.assert_array_equal(mine, block())


def test_no_descriptor_is_kept_by_a_child(exchange: Family) -> None:
    link = exchange.child()
    before = open_files("/memfd:weights")
    kept = [link.exchange(block(index)) for index in range(5)]
    assert open_files("/memfd:weights") == before + len(kept)  # those of the parent, which is this process too


@pytest.mark.parametrize("when", ["at once", "after a while"])
def test_without_the_parent_a_child_keeps_what_it_has(when: str, caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    content = block()
    with ours, theirs:
        share_memory(theirs)
        if when == "at once":
            ours.close()
        else:
            theirs.settimeout(0.05)
        assert shared(content) is content
        assert shared(content) is content
        sharing._links.clear()
    assert len(caplog.messages) == 1


def test_without_anybody_to_share_with_and_for_little_ones_nothing_is_shared(exchange: Family) -> None:
    content = block()
    assert shared(content) is content
    share_memory(exchange.connect())
    small = block(0, MIN_BYTES - 1)
    assert shared(small) is small
    once = shared(content)
    assert once is not content
    assert shared(once) is once


def test_a_block_that_is_not_sealed_is_not_used(exchange: Family) -> None:
    """Its maker could still change it."""
    maker, user = (exchange.child() for _ in range(2))
    content = block()
    descriptor = os.memfd_create("open to changes")
    os.write(descriptor, content.data)
    maker._ask(b"!" + sharing.hashlib.sha256(content.data).digest(), [descriptor])
    assert user.exchange(content) is content
    os.close(descriptor)


@pytest.mark.parametrize("wrong", ["named", "written", "short"])
def test_a_file_that_somebody_could_change_is_not_used(exchange: Family, wrong: str, tmp_path: Path) -> None:
    maker, user = (exchange.child() for _ in range(2))
    content, path = block(), tmp_path / "file"
    path.write_bytes(content.tobytes()[: -1 if wrong == "short" else None])
    descriptor = os.open(path, os.O_RDWR if wrong == "written" else os.O_RDONLY)
    if wrong != "named":
        path.unlink()
    maker._ask(b"!" + sharing.hashlib.sha256(content.data).digest(), [descriptor])
    assert user.exchange(content) is content
    os.close(descriptor)


def test_a_file_without_a_name_serves_all_children(exchange: Family, tmp_path: Path) -> None:
    links, content, path = [exchange.child() for _ in range(2)], block(), tmp_path / "file"
    path.write_bytes(content.tobytes())
    descriptor = os.open(path, os.O_RDONLY)
    path.unlink()
    first, second = (link.exchange(content, descriptor) for link in links)
    os.close(descriptor)
    np.testing.assert_array_equal(first, content)
    assert inode(first) == inode(second) != "0"
