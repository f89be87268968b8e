"""Machines described by what was measured on them, or is known of their kind: choices can be looked at without them."""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.host import Host, describe
from engine.compiler.measuring.caches import Caches
from engine.compiler.measuring.judging import judge
from engine.compiler.measuring.rates import Rates

KIB, MIB = 1 << 10, 1 << 20


def _rates(
    clock: float,
    *,
    a_cycle: float,
    latency: float,
    repeats: float,
    sizes: Caches,
    fetched: tuple[float, ...] = (),
    stranded: tuple[float, ...] = (),
    **speeds: float,
) -> Rates:
    return Rates(
        caches=sizes,
        threads=2,
        products=clock * a_cycle,
        chained=clock / latency,
        repeats=clock * repeats,
        fetched=tuple(speed * 1e9 for speed in fetched),
        stranded=tuple(speed * 1e9 for speed in stranded),
        **{name: speed * 1e9 for name, speed in speeds.items()},
    )


# Measured: Zen 3, Zen 4, Zen 5, Emerald Rapids and what is most likely Granite Rapids (98, 117, 270, 178 and 243
# GFLOP/s of a core). The others by what their makers say.
ZEN_3: Final = judge(
    describe("avx2"),
    _rates(
        3.06e9, a_cycle=2, latency=4, repeats=1.93, sizes=Caches(64, 32 * KIB, MIB // 2, 32 * MIB),
        second=95, last=69, memory=15.1, memory_shared=10.5,
        fetched=(14.8, 14.7, 13.6, 14.3, 15.6), stranded=(20.6, 20.5, 18.2, 18.2, 17.1),
    ),
)  # fmt: skip
ZEN_4: Final = judge(
    describe("avx512"),
    _rates(
        3.66e9, a_cycle=1, latency=4, repeats=1.82, sizes=Caches(64, 32 * KIB, MIB, 32 * MIB),
        second=117, last=98, memory=30, memory_shared=29,
    ),
)  # fmt: skip
ZEN_5: Final = judge(
    describe("avx512"),
    _rates(
        4.22e9, a_cycle=2, latency=4.02, repeats=1.99, sizes=Caches(64, 48 * KIB, MIB, 32 * MIB),
        second=266, last=122, memory=44, memory_shared=44,
    ),
)  # fmt: skip
EMERALD_RAPIDS: Final = judge(
    describe("avx512"),
    _rates(
        2.78e9, a_cycle=2, latency=4, repeats=2, sizes=Caches(64, 48 * KIB, 2 * MIB, 260 * MIB),
        second=137, last=28, memory=16, memory_shared=14,
    ),
)  # fmt: skip
GRANITE_RAPIDS: Final = judge(
    describe("avx512"),
    _rates(
        3.8e9, a_cycle=2, latency=4, repeats=1.78, sizes=Caches(64, 48 * KIB, 2 * MIB, 480 * MIB),
        second=188, last=30, memory=20, memory_shared=20,
    ),
)  # fmt: skip
SKYLAKE: Final = judge(
    describe("avx512"),
    _rates(
        2.4e9, a_cycle=2, latency=4, repeats=2, sizes=Caches(64, 32 * KIB, MIB, 25 * MIB),
        second=120, last=25, memory=12, memory_shared=9,
    ),
)  # fmt: skip
NEOVERSE: Final = judge(
    describe("neon"),
    _rates(
        2.6e9, a_cycle=2, latency=4, repeats=2, sizes=Caches(64, 64 * KIB, MIB, 32 * MIB),
        second=60, last=30, memory=20, memory_shared=15,
    ),
)  # fmt: skip
MACHINES: Final[dict[str, Host]] = {
    "Zen 3": ZEN_3, "Zen 4": ZEN_4, "Zen 5": ZEN_5, "Emerald Rapids": EMERALD_RAPIDS, "Granite Rapids": GRANITE_RAPIDS,
    "Skylake": SKYLAKE, "Neoverse": NEOVERSE,
}  # fmt: skip
