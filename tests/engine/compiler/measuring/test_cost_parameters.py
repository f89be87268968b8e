"""Cost parameters of machines, and the kernels chosen for them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from engine.compiler.codegen.host import Host, describe
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.object_code import assembly
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.winograd.blocking import choose_blocking
from engine.compiler.kernels.winograd.stages import Scratch, emit_product
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.compiler.measuring.caches import Caches
from engine.compiler.measuring.cost_parameters import Rates, host_from_rates
from tests.engine.compiler.machines import EMERALD_RAPIDS, GRANITE_RAPIDS, MACHINES, ZEN_4, ZEN_5, choose_whole

# Rows and columns, input and output channels of the convolutions with 1 × 1 weights of ResNet-50.
POINTWISE = [(56, 64, 256), (56, 256, 64), (28, 512, 128), (28, 256, 512), (14, 1024, 256)]


def rates(**changed: Any) -> Rates:
    usual = {"products": 3.66e9, "chained": 0.915e9, "repeats": 6.7e9, "second": 117e9, "last": 98e9}
    return Rates(
        caches=Caches(64, 32 << 10, 1 << 20, 32 << 20),
        threads=2,
        **(usual | {"memory": 30e9, "memory_shared": 29e9} | changed),
    )


def test_the_defaults_of_avx512_are_those_measured_on_zen_4() -> None:
    assert describe("avx512") == ZEN_4


@pytest.mark.parametrize("share", [0.85, 1.0, 1.15])
def test_a_measurement_that_differs_a_little_describes_the_same_machine(share: float) -> None:
    for name in ("second", "last", "memory", "memory_shared", "repeats"):
        changed = host_from_rates(describe("avx512"), rates(**{name: share * getattr(rates(), name)}))
        assert changed.memory == ZEN_4.memory and changed.repeats_a_product == 2


@pytest.mark.parametrize("name", ["products", "chained", "repeats", "second", "last", "memory", "memory_shared"])
@pytest.mark.parametrize("value", [1e3, 1e15])
def test_no_measurement_describes_a_machine_there_cannot_be(name: str, value: float) -> None:
    host = host_from_rates(describe("avx512"), rates(**{name: value}))
    assert 2 <= host.products_in_flight <= 16 and 0.5 <= host.repeats_a_product <= 4
    costs = {key: cost for key, cost in dataclasses.asdict(host.memory).items() if key.endswith("_cost")}
    assert all(1e-4 <= cost <= 10 for cost in costs.values())
    assert host.chunk_flops >= 1e3


def test_unknown_caches_have_default_sizes() -> None:
    host = host_from_rates(describe("avx2"), dataclasses.replace(rates(), caches=Caches()))
    assert (host.memory.first_bytes, host.memory.second_bytes) == (32 << 10, 1 << 20)


def test_slow_broadcasts_are_shared_by_more_products() -> None:
    """hosts.md: 28 × 1 pixels and vectors on Zen 4, 14 × 2 on Emerald Rapids (127 and 139 GFLOP/s there)."""
    for size, channels, results in POINTWISE:
        one, two = (choose_tile(host, size, size, results, channels) for host in (ZEN_4, EMERALD_RAPIDS))
        assert (one.rows * one.columns, one.vectors) == (28, 1)
        assert (two.rows * two.columns, two.vectors) == (14, 2)


def test_weights_that_memory_brings_too_slowly_are_not_made_more_of() -> None:
    """Winograd weights of 37 MB for 512 to 512 channels at 7 × 7: 2.6 ms on Emerald Rapids; direct: 1.7 ms."""
    assert choose_whole(ZEN_4, 1, 7, 7, 512, 512, 1) is not None
    assert choose_whole(EMERALD_RAPIDS, 1, 7, 7, 512, 512, 1) is None
    assert choose_whole(EMERALD_RAPIDS, 1, 56, 56, 64, 64, 1) is not None


def test_weights_are_read_as_the_table_says() -> None:
    found = {name: host.memory for name, host in MACHINES.items()}
    assert {name: each.ahead_bytes for name, each in found.items() if each.ahead_bytes != 4096} == {
        "Granite Rapids": 2048
    }
    assert {name: (each.streams, each.stream_ahead_bytes) for name, each in found.items() if each.streams > 1} == {
        "Zen 3": (4, 256)
    }


@pytest.mark.parametrize(
    ("level", "share", "repeats"),
    [
        ("avx2", 0.70, 1),
        ("avx2", 1.0, 1),
        ("avx2", 1.8, 2),
        ("avx2", 2.0, 2),
        ("avx512", 0.59, 1),
        ("avx512", 0.3, 1),
        ("neon", 0.5, 0.5),
        ("neon", 0.55, 0.5),
        ("neon", 1.0, 1),
    ],
)
def test_numbers_are_seen_repeated_more_slowly_than_they_can_be(level: str, share: float, repeats: float) -> None:
    """Zen 3 can broadcast once per product; it was measured at 0.7, Emerald Rapids at 0.6."""
    assert host_from_rates(describe(level), rates(repeats=share * rates().products)).repeats_a_product == repeats


def test_a_slow_last_level_rules_out_gathering_images_by_tiles() -> None:
    """Granite Rapids: a convolution of stride 2 from 40 × 40, 256 → 256, takes 2.3 ms direct, 3.6 ms by Winograd."""
    for size, channels, results in ((40, 128, 256), (20, 256, 512), (20, 256, 256)):
        assert choose_whole(GRANITE_RAPIDS, 2, size, size, channels, results, 1) is None
        assert choose_whole(ZEN_4, 2, size, size, channels, results, 1) == Filtering(4, 2)
    for size, channels in ((56, 64), (28, 128), (40, 128), (80, 64)):
        assert choose_whole(GRANITE_RAPIDS, 1, size, size, channels, channels, 1) == Filtering(4, 1)


def test_with_a_slow_last_level_a_row_reads_its_weights_in_wide_panels() -> None:
    assert choose_tile(GRANITE_RAPIDS, 1, 1, 4096, 4096).vectors == 8
    assert choose_tile(ZEN_5, 1, 1, 4096, 4096).vectors == 2


@pytest.mark.parametrize("host", MACHINES.values(), ids=MACHINES)
def test_every_choice_fits_the_registers(host: Host) -> None:
    for size, channels, results in (*POINTWISE, (7, 512, 2048), (1, 2048, 1000), (3, 3, 3)):
        tile = choose_tile(host, size, size, results, channels)
        assert tile.rows * tile.columns * tile.vectors + tile.vectors < host.registers
        blocking = choose_blocking(host, Filtering(4, 1), size, size, channels, results, 1)
        assert blocking.at_once * blocking.vectors + blocking.vectors < host.registers


@pytest.mark.parametrize("level", ["avx512", "avx2", "sse", "neon"])
@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_sums_stay_in_registers_while_they_are_added_to(level: str, vectors: int) -> None:
    host, module = describe(level), Module()
    scratch = Scratch(Filtering(4, 1), 272, 272, 64 * 272, 64 * 272)
    emit_product(module, "f", scratch, [host.lanes] * vectors, host.most_rows(vectors), unroll=4, ahead=0, adds=False)
    found = re.search(r"\n(\.LBB0_\d+):(.*)\1\n", assembly(str(module), host), re.DOTALL)
    assert found and found[2].count("sp)") + found[2].count("[sp") < 8  # less than two for each of four terms
