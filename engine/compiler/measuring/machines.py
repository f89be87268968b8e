"""Rates of processors by micro-architecture, which select kernels on a machine without a calibration.

Zen 3 to 5, Emerald Rapids and Granite Rapids were measured (98, 117, 270, 178 and 243 GFLOP/s per core); the others
are from vendor data. An unlisted processor gets the defaults of its level (``codegen.host.describe``).
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.host import Host, cpu_model
from engine.compiler.measuring.caches import Caches
from engine.compiler.measuring.cost_parameters import Rates

KIB, MIB = 1 << 10, 1 << 20


def _rates(
    clock: float,
    *,
    a_cycle: float,
    latency: float,
    repeats: float,
    sizes: Caches,
    ahead: int = 0,
    streams: int = 1,
    stream_ahead: int = 0,
    **speeds: float,
) -> Rates:
    return Rates(
        caches=sizes,
        threads=2,
        products=clock * a_cycle,
        chained=clock / latency,
        repeats=clock * repeats,
        ahead_bytes=ahead,
        streams=streams,
        stream_ahead_bytes=stream_ahead,
        **{name: speed * 1e9 for name, speed in speeds.items()},
    )


RATES: Final[dict[str, tuple[str, Rates]]] = {
    "Zen 3": ("avx2", _rates(
        3.06e9, a_cycle=2, latency=4, repeats=1.93, sizes=Caches(64, 32 * KIB, MIB // 2, 32 * MIB),
        second=95, last=69, memory=15.1, memory_shared=10.5,
        ahead=4 * KIB, streams=4, stream_ahead=256,
    )),
    "Zen 4": ("avx512", _rates(
        3.66e9, a_cycle=1, latency=4, repeats=1.82, sizes=Caches(64, 32 * KIB, MIB, 32 * MIB),
        second=117, last=98, memory=30, memory_shared=29,
    )),
    "Zen 5": ("avx512", _rates(
        4.22e9, a_cycle=2, latency=4.02, repeats=1.99, sizes=Caches(64, 48 * KIB, MIB, 32 * MIB),
        second=266, last=122, memory=44, memory_shared=44,
    )),
    "Emerald Rapids": ("avx512", _rates(
        2.78e9, a_cycle=2, latency=4, repeats=2, sizes=Caches(64, 48 * KIB, 2 * MIB, 260 * MIB),
        second=137, last=28, memory=16, memory_shared=14,
    )),
    "Granite Rapids": ("avx512", _rates(
        3.8e9, a_cycle=2, latency=4, repeats=1.78, sizes=Caches(64, 48 * KIB, 2 * MIB, 480 * MIB),
        second=188, last=30, memory=20, memory_shared=20,
        ahead=2 * KIB,
    )),
    "Skylake": ("avx512", _rates(
        2.4e9, a_cycle=2, latency=4, repeats=2, sizes=Caches(64, 32 * KIB, MIB, 25 * MIB),
        second=120, last=25, memory=12, memory_shared=9,
    )),
    "Neoverse": ("neon", _rates(
        2.6e9, a_cycle=2, latency=4, repeats=2, sizes=Caches(64, 64 * KIB, MIB, 32 * MIB),
        second=60, last=30, memory=20, memory_shared=15,
    )),
}  # fmt: skip
"""Micro-architecture -> the level of the code that the rates are for, and the rates."""

# Family and models of Linux's /proc/cpuinfo; Sapphire Rapids has Emerald Rapids' cores and caches.
_AMD: Final = {25: {**dict.fromkeys((*range(0x10), *range(0x20, 0x60)), "Zen 3"),
                    **dict.fromkeys((*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0)), "Zen 4")},
               26: dict.fromkeys(range(0x100), "Zen 5")}  # fmt: skip
_INTEL: Final = {6: {85: "Skylake", 143: "Emerald Rapids", 207: "Emerald Rapids", 173: "Granite Rapids",
                     174: "Granite Rapids"}}  # fmt: skip
_MAKERS: Final = {"AuthenticAMD": _AMD, "GenuineIntel": _INTEL}


def microarchitecture() -> str | None:
    """Return the name of this processor's micro-architecture in ``RATES``; None if it is not listed."""
    maker, family, model = cpu_model()
    return _MAKERS.get(maker, {}).get(family, {}).get(model)


def known_rates(host: Host) -> Rates | None:
    """Return the rates of this processor for code of a host's level; None if it is not in the table."""
    name = microarchitecture()
    level, rates = RATES[name] if name is not None else ("", None)
    return rates if level == host.name else None
