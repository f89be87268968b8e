"""Processes of one parent share one read-only copy of their weights, which is freed with its last user."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import SharedBlockServer
from engine.memory import shared_blocks
from engine.memory.shared_blocks import MIN_BYTES, _SharedBlockClient, share_memory, shared
from engine.tensor import Array
from tests.held import open_files


class Server(SharedBlockServer):
    """A parent whose children are in this process as well."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[socket.socket] = []

    def connect(self) -> socket.socket:
        self.ends.append(super().connect())
        return self.ends[-1]

    def child(self) -> _SharedBlockClient:
        return _SharedBlockClient(self.connect())


@pytest.fixture
def server() -> Iterator[Server]:
    parent = Server()
    yield parent
    shared_blocks._clients.clear()
    gc.collect()
    for end in parent.ends:
        end.close()


def block(seed: int = 0, size: int = MIN_BYTES) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def inode(array: Array) -> str:
    """Return the number of the memory that an address belongs to."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, mode, _, _, number, *_ = line.split()
        first, last = (int(each, 16) for each in span.split("-"))
        if first <= address < last:
            assert "w" not in mode
            return number
    raise AssertionError("not mapped")


def settle(client: _SharedBlockClient) -> None:
    """Come back when the parent has heard all that was said before."""
    assert client._ask(b"?" + bytes(32)) is None


def test_two_children_have_one_copy(server: Server) -> None:
    clients = [server.child() for _ in range(2)]
    first, second = (client.share(block()) for client in clients)
    assert inode(first) == inode(second) != "0"
    for each in (first, second):
        np.testing.assert_array_equal(each, block())
        assert not each.flags.writeable
    assert inode(clients[0].share(block(1))) != inode(first)


def test_a_block_goes_with_its_last_user(server: Server) -> None:
    clients = [server.child() for _ in range(2)]
    parts = [client.share(block())[100:200] for client in clients for _ in range(2)]
    while parts:
        np.testing.assert_array_equal(parts.pop(), block()[100:200])
        gc.collect()
        for client in clients:
            settle(client)
        assert server.blocks == bool(parts)


def test_what_a_child_used_goes_with_the_child(server: Server) -> None:
    client, other = server.child(), server.child()
    kept = [each.share(block(index)) for index, each in enumerate((other, client))]
    assert server.blocks == 2
    server.ends[1].close()
    for _ in range(1000):
        settle(client)
        if server.blocks == 1:
            break
    assert server.blocks == 1
    np.testing.assert_array_equal(kept[0], block(0))


def test_a_shared_block_cannot_be_changed(server: Server) -> None:
    client = server.child()
    mine = client.share(block())
    (descriptor,) = server._blocks.values()
    with pytest.raises(PermissionError):
        os.truncate(descriptor, 0)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    np.testing.assert_array_equal(mine, block())


def test_no_descriptor_is_kept_by_a_child(server: Server) -> None:
    client = server.child()
    before = open_files("/memfd:weights")
    kept = [client.share(block(index)) for index in range(5)]
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
        shared_blocks._clients.clear()
    assert len(caplog.messages) == 1


def test_without_anybody_to_share_with_and_for_little_ones_nothing_is_shared(server: Server) -> None:
    content = block()
    assert shared(content) is content
    share_memory(server.connect())
    small = block(0, MIN_BYTES - 1)
    assert shared(small) is small
    once = shared(content)
    assert once is not content
    assert shared(once) is once


def test_a_block_that_is_not_sealed_is_not_used(server: Server) -> None:
    """Its maker could still change it."""
    maker, user = (server.child() for _ in range(2))
    content = block()
    descriptor = os.memfd_create("open to changes")
    os.write(descriptor, content.data)
    maker._ask(b"!" + shared_blocks.hashlib.sha256(content.data).digest(), [descriptor])
    assert user.share(content) is content
    os.close(descriptor)


@pytest.mark.parametrize("wrong", ["named", "written", "short"])
def test_a_file_that_another_user_could_change_is_not_used(server: Server, wrong: str, tmp_path: Path) -> None:
    maker, user = (server.child() for _ in range(2))
    content, path = block(), tmp_path / "file"
    path.write_bytes(content.tobytes()[: -1 if wrong == "short" else None])
    descriptor = os.open(path, os.O_RDWR if wrong == "written" else os.O_RDONLY)
    if wrong != "named":
        path.unlink()
    maker._ask(b"!" + shared_blocks.hashlib.sha256(content.data).digest(), [descriptor])
    assert user.share(content) is content
    os.close(descriptor)


def test_a_file_without_a_name_serves_all_children(server: Server, tmp_path: Path) -> None:
    clients, content, path = [server.child() for _ in range(2)], block(), tmp_path / "file"
    path.write_bytes(content.tobytes())
    descriptor = os.open(path, os.O_RDONLY)
    path.unlink()
    first, second = (client.share(content, descriptor) for client in clients)
    os.close(descriptor)
    np.testing.assert_array_equal(first, content)
    assert inode(first) == inode(second) != "0"
