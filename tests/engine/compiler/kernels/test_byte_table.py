"""Lookups of bytes in a table, at every level, on memory that ends at a guard page."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import Host, describe, detect
from engine.compiler.kernels.byte_table import make_byte_table
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

HOSTS = [*map(describe, LEVELS), detect()]


@together(("host", HOSTS), ("shape", [(1,), (63,), (64,), (7, 5), (3, 65), (2, 3, 130)]), ("gap", [0, 3]))
def test_every_byte_is_looked_up(host: Host, shape: tuple[int, ...], gap: int) -> None:
    random = np.random.default_rng(3)
    table = random.permutation(256).astype(np.uint8)
    wide = (*shape[:-1], shape[-1] + gap)
    source = random.integers(0, 256, wide).astype(np.uint8)
    strides = np.empty(wide, np.uint8).strides
    kernel = make_byte_table(shape, strides, strides, host)
    assert kernel is not None
    count = source.size - gap
    given, target = (guarded_array(each.reshape(-1)[:count], dtype="uint8") for each in (source, np.zeros_like(source)))
    run(kernel, host.name, [target, given, guarded_array(table, dtype="uint8")])
    found = np.append(target, np.zeros(gap, np.uint8)).reshape(wide)
    np.testing.assert_array_equal(found[..., : shape[-1]], table[source[..., : shape[-1]]])
    assert not found[..., shape[-1] :].any()


def test_other_orders_have_no_such_kernel() -> None:
    assert make_byte_table((8, 8), (8, 1), (1, 8), detect()) is None


@pytest.mark.parametrize("host", HOSTS)
def test_many_bytes_fall_into_chunks(host: Host) -> None:
    kernel = make_byte_table((1 << 20,), (1,), (1,), host)
    assert kernel is not None
    assert kernel.chunks > 4
