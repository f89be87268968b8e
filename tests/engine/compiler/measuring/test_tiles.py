"""Tile instructions are used only if they give right results on this machine."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from engine.compiler.codegen.host import Host, describe
from engine.compiler.measuring.tiles import checked
from tests.engine.compiler.kernels.convolution.emulated_tiles import Tiles, emulated_host, without_tiles

__all__ = ["emulated_host"]


def test_right_results_are_accepted(emulated_host: Host) -> None:
    assert checked(emulated_host) == emulated_host


def test_wrong_results_are_reported_and_avoided(
    emulated_host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(tiles: Tiles, sums: int, a: int, b: int) -> None:
        right(tiles, sums, a, b)
        tiles.registers[sums][0, 0] ^= 1

    right: Any = Tiles.tdpbf16ps
    monkeypatch.setattr(Tiles, "tdpbf16ps", wrong)
    with caplog.at_level(logging.WARNING, "pnnx_serve.engine"):
        found = checked(emulated_host)
    assert found == without_tiles(emulated_host)
    assert "tile instructions (AMX) of this processor are not used: wrong results" in caplog.text


def test_a_host_without_them_is_not_checked() -> None:
    host = describe("avx512")
    assert checked(host) == host
