"""Emulation of AMX in numpy: generated code calls it in place of the instructions, with their operands.

Whatever the manual forbids is collected as an error: sizes of operands that do not match, use without a configuration,
numbers beyond the registers. Registers belong to a thread, as in the processor.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from engine.compiler.codegen import loader, object_code
from engine.compiler.codegen.host import Host, detect

_NAMES = ("ldtilecfg", "tilerelease", "tileloadd64", "tilestored64", "tdpbusd", "tdpbf16ps")


class Tiles(threading.local):
    """Tile registers of a thread, as arrays of (rows, bytes a row)."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors
        self.registers: dict[int, Any] = {}

    def ldtilecfg(self, address: int) -> None:
        content = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
        sizes = content[16:32].view(np.uint16), content[48:56]
        self._check(
            content[0] == 1 and not content[1:16].any() and not content[32:48].any(), "palette or reserved byte"
        )
        self._check(not content[56:].any() and sizes[0].max() <= 64 and sizes[1].max() <= 16, "sizes")
        self.registers = {
            k: np.zeros((rows, size), np.uint8) for k, (size, rows) in enumerate(zip(*sizes, strict=True))
        }

    def tilerelease(self) -> None:
        self.registers = {}

    def tileloadd64(self, number: int, address: int, stride: int) -> None:
        register = self._register(number)
        for row, line in enumerate(register):
            line[:] = np.frombuffer(ctypes.string_at(address + row * stride, len(line)), np.uint8)

    def tilestored64(self, number: int, address: int, stride: int) -> None:
        for row, line in enumerate(self._register(number)):
            ctypes.memmove(address + row * stride, line.tobytes(), len(line))

    def tdpbusd(self, sums: int, a: int, b: int) -> None:
        left, right, total = self._operands(sums, a, b)
        rows, words = left.shape[0], left.shape[1] // 4
        left = left.reshape(rows, words, 4).astype(np.int64)
        right = right.view(np.int8).reshape(words, -1, 4).astype(np.int64)
        total.view(np.int32)[:] += np.einsum("mkj,knj->mn", left, right).astype(np.int32)

    def tdpbf16ps(self, sums: int, a: int, b: int) -> None:
        left, right, total = self._operands(sums, a, b)
        rows, words = left.shape[0], left.shape[1] // 4
        x, y = (
            (each.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
            for each, shape in ((left, (rows, words, 2)), (right, (words, -1, 2)))
        )
        total.view(np.float32)[:] += np.einsum("mkj,knj->mn", x, y)

    def _operands(self, sums: int, a: int, b: int) -> tuple[Any, Any, Any]:
        left, right, total = map(self._register, (a, b, sums))
        fits = left.shape[0] == total.shape[0] and left.shape[1] == 4 * right.shape[0]
        self._check(fits and right.shape[1] == total.shape[1] and len({sums, a, b}) == 3, "operands of a product")
        return left, right, total

    def _register(self, number: int) -> Any:
        self._check(number in self.registers, f"no register {number}")
        return self.registers[number]

    def _check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.errors.append(what)
            raise AssertionError(what)


_TYPES = {"tileloadd64": "bpl", "tilestored64": "bpl", "ldtilecfg": "p", "tilerelease": ""}
# Added to a field of each emulated host: code that another test loaded calls the functions of that test.
_numbers = count(1)
_OF = {"b": ctypes.c_uint8, "p": ctypes.c_void_p, "l": ctypes.c_int64}


def with_tiles(host: Host) -> Host:
    """Return a host with all tile instructions."""
    return replace(host, features=f"{without_tiles(host).features},+amx-tile,+amx-int8,+amx-bf16")


def without_tiles(host: Host) -> Host:
    """Return a host without tile instructions."""
    return replace(host, features=re.sub(r",\+amx-\w+", "", host.features))


@pytest.fixture
def emulated_host(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a host whose tile instructions are emulated; the test fails if the code used one wrongly."""
    if not detect().has_bfloat16:
        pytest.skip("the other instructions of processors with AMX are missing")
    errors: list[str] = []
    tiles = Tiles(errors)
    calls: dict[str, int] = dict.fromkeys(_NAMES, 0)

    def counted(name: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            calls[name] += 1
            getattr(tiles, name)(*arguments)

        return call

    callbacks = {
        f"emulated_{name}": ctypes.CFUNCTYPE(None, *(_OF[each] for each in _TYPES.get(name, "bbb")))(counted(name))
        for name in _NAMES
    }
    of_c, parse = loader._of_c, object_code._parse

    def address(name: str) -> int:
        found = callbacks.get(name)
        return of_c(name) if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0

    def rewritten(text: str, *others: Any) -> Any:
        return parse(re.sub(rf"llvm\.x86\.({'|'.join(_NAMES)})\b", r"emulated_\1", text), *others)

    monkeypatch.setattr(loader, "_of_c", address)
    monkeypatch.setattr(object_code, "_parse", rewritten)
    host = with_tiles(detect())
    yield replace(host, chunk_bytes=host.chunk_bytes + next(_numbers))
    assert not errors
    assert calls["ldtilecfg"] == calls["tilerelease"] > 0
