"""The measured peak: what runs is what is counted."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import engine
from engine.compiler.codegen import object_code, peak
from engine.compiler.codegen.host import describe, detect


@pytest.mark.parametrize("name", ["avx512", "avx2", "sse"])
def test_every_sum_is_multiplied_and_added_to_and_nothing_is_spilled(name: str) -> None:
    host = describe(name)
    if host.lanes > detect().lanes:
        return  # this processor cannot run it
    chains = peak._chains(host)
    code = object_code.Code([object_code.assemble(peak._source(host, chains), host)], host)
    values = np.repeat(np.arange(chains + 2, dtype=np.float32), host.lanes)
    values[: 2 * host.lanes] = np.repeat(np.float32([2, 1]), host.lanes)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))(values.ctypes.data, 3)
    start = np.repeat(np.arange(2, chains + 2, dtype=np.float32), host.lanes)
    np.testing.assert_array_equal(values[2 * host.lanes :], ((start * 2 + 1) * 2 + 1) * 2 + 1)


def test_a_peak_is_a_rate() -> None:
    assert engine.measure_peak(0.01) > 1e6
