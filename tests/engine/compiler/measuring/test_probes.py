"""Probes do the amount of work that is counted."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import engine
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host, describe, detect
from engine.compiler.measuring import probes
from engine.compiler.measuring.bench import Probe, measure

LEVELS = [describe(name) for name in ("avx512", "avx2", "sse")]
RUNNABLE = [each for each in LEVELS if detect().name != "neon" and each.lanes <= detect().lanes] or [detect()]


def called(name: str, text: str, host: Host, values: Any, turns: int) -> None:
    code = object_code.Code([object_code.assemble(text, host)], host)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address(name))(values.ctypes.data, turns)


@pytest.mark.parametrize("host", RUNNABLE, ids=lambda host: host.name)
def test_a_product_is_added_to_every_sum(host: Host) -> None:
    count = probes.chains(host)
    values = np.repeat(np.arange(count + 2, dtype=np.float32), host.lanes)
    values[: 2 * host.lanes] = np.repeat(np.float32([2, 5]), host.lanes)
    called("peak", probes.peak(host, count), host, values, 3)
    start = np.repeat(np.arange(2, count + 2, dtype=np.float32), host.lanes)
    np.testing.assert_array_equal(values[2 * host.lanes :], start + 3 * 10)


def test_a_product_is_accumulated_in_place() -> None:
    """Arm accumulates products in place; a sum in another register would need a copy each."""
    host = describe("neon")
    for text in (probes.peak(host, probes.chains(host)), probes.chain(host)):
        loop = object_code.assembly(text, host).partition(".LBB0_2:")[2].partition("b.lt")[0]
        assert "fmla" in loop and "mov\tv" not in loop


@pytest.mark.parametrize("host", RUNNABLE, ids=lambda host: host.name)
def test_a_chain_is_so_many_products_one_after_the_other(host: Host) -> None:
    values = np.ones(3 * host.lanes, np.float32)
    called("chain", probes.chain(host), host, values, 2)
    np.testing.assert_array_equal(values[2 * host.lanes :], 1 + 2 * probes.CHAIN)


@pytest.mark.parametrize("host", RUNNABLE, ids=lambda host: host.name)
def test_every_number_is_repeated_and_joined(host: Host) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**31, 2 * probes.REPEATS, np.int32)
    values = numbers.copy()
    called("repeats", probes.repeats(host), host, values, 1)
    expected = np.bitwise_xor.reduce(numbers[: probes.REPEATS].reshape(-1, 8))
    np.testing.assert_array_equal(values[: 8 * host.lanes], np.repeat(expected, host.lanes))


@pytest.mark.parametrize("host", RUNNABLE, ids=lambda host: host.name)
def test_a_walk_reads_or_copies_every_number(host: Host) -> None:
    size = 1 << 16
    values = np.arange(size // 4, dtype=np.float32) % 7
    numbers = values.copy()
    called("read", probes.walk("read", size, host), host, values, 1)
    np.testing.assert_array_equal(values[: 8 * host.lanes], numbers.reshape(-1, 8 * host.lanes).sum(0))
    called("copy", probes.walk("copy", size, host), host, numbers, 1)
    np.testing.assert_array_equal(numbers[: 8 * host.lanes], 0)  # the sums, empty here
    np.testing.assert_array_equal(
        numbers[8 * host.lanes : size // 8], (np.arange(size // 8, size // 4) % 7)[8 * host.lanes :]
    )


def test_a_peak_is_a_rate() -> None:
    assert engine.measure_peak(0.01) > 1e6


def test_a_probe_is_called_until_the_clock_can_tell() -> None:
    host = detect()
    probe = Probe("chain", probes.chain(host), host)
    assert 1e3 < probe.turns_a_second(np.full(3 * host.lanes, 0.5, np.float32), 0) < 1e10


def test_all_cores_together_have_no_less_of_memory_than_one_alone() -> None:
    found = measure(RUNNABLE[0], seconds=1e-4)
    assert found.memory / found.threads <= found.memory_shared <= found.memory
