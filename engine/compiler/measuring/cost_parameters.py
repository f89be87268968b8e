"""Conversion of measured rates to the parameters of the cost models, in units of the time of one product.

Rates vary slightly from one measurement to the next, and kernel choices must not: every parameter is rounded to the
nearest power of two times a reference value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from engine.compiler.codegen.host import Host, Memory
from engine.compiler.measuring.caches import Caches

NAMES: Final = ("products", "chained", "repeats", "second", "last", "memory", "memory_shared")
"""Rates that every machine has."""

# Cost of a byte of the last level that is hidden, because kernels prefetch and compute meanwhile.
_HIDDEN: Final = 0.04
# Share of the cost beyond that which slows a kernel down.
_FELT: Final = 0.5
# Usual cost of a byte from memory, in the time of one product.
_USUAL: Final = 0.12
# Share of the cost of a byte from memory that slows a kernel down: without prefetching, and with it.
_UNFORESEEN: Final = 5 / 12
_FETCHED: Final = 1 / 8
# Broadcasts use the load units, which a second hardware thread uses, too: they slow down by this much more than
# products do. Zen 3 (0.92 to 1.0 per product) was measured at 0.70; no core was measured at twice its true rate.
_HELD_UP: Final = 1.2
# All x86 cores with fused multiply-add start at least as many loads as products a cycle; some Arm cores do not.
_LEAST_REPEATS: Final = 0.5
_LEAST_REPEATS_X86: Final = 1.0
# Least computing time of a chunk.
_CHUNK_S: Final = 4.3e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of one core, per second.

    Args:
        caches: sizes that the operating system reports.
        threads: number of cores that measured ``memory_shared`` at once.
        products: independent products of two vectors on registers.
        chained: products of two vectors that each depend on the previous one.
        repeats: numbers of the first-level cache broadcast to all lanes of a vector.
        second, last, memory: bytes read from the second-level cache, the last-level cache and memory.
        memory_shared: bytes read from memory when all cores read at once.
        ahead_bytes, stream_ahead_bytes: fastest prefetch distance of weights, alone and in streams; 0 if unknown.
        streams: number of places at which weights that are used once are read in turn.
    """

    caches: Caches
    threads: int
    products: float
    chained: float
    repeats: float
    second: float
    last: float
    memory: float
    memory_shared: float
    ahead_bytes: int = 0
    streams: int = 1
    stream_ahead_bytes: int = 0


def host_from_rates(host: Host, rates: Rates) -> Host:
    """Return a host with the parameters that measured rates give.

    Args:
        host: supplies what was not measured.
    """
    caches, known = rates.caches, host.memory
    last = _cost(rates, rates.last, 0.04)
    memory, shared = (_cost(rates, each, _USUAL) for each in (rates.memory, rates.memory_shared))
    return replace(
        host,
        products_in_flight=_bounded(round(rates.products / rates.chained), 2, 16),
        repeats_a_product=_bounded(_step(_HELD_UP * rates.repeats / rates.products, 1.0), _least_repeats(host), 4),
        chunk_flops=int(_bounded(_step(_CHUNK_S * rates.products * 2 * host.lanes, host.chunk_flops), 1e4, 1e8)),
        memory=Memory(
            line_bytes=caches.line if caches.line in (32, 64, 128, 256) else known.line_bytes,
            first_bytes=caches.first or known.first_bytes,
            second_bytes=caches.second or known.second_bytes,
            last_bytes=caches.last or caches.second or known.last_bytes,
            ahead_bytes=rates.ahead_bytes or known.ahead_bytes,
            streams=rates.streams,
            stream_ahead_bytes=rates.stream_ahead_bytes or known.stream_ahead_bytes,
            repeat_cost=_felt(_cost(rates, rates.second, 0.03)),
            stream_cost=_felt(last),
            memory_cost=_UNFORESEEN * memory,
            fetched_cost=_FETCHED * memory,
            shared_cost=shared,
            spilled_cost=last,
        ),
    )


def _least_repeats(host: Host) -> float:
    return _LEAST_REPEATS_X86 if host.triple.startswith("x86_64") else _LEAST_REPEATS


def _cost(rates: Rates, bytes_a_second: float, near: float) -> float:
    """Return the cost of a byte, in the time of one product."""
    return _bounded(_step(rates.products / bytes_a_second, near), 1e-3, 10.0)


def _felt(cost: float) -> float:
    return max(1e-3, _FELT * (cost - _HIDDEN))


def _step(value: float, near: float) -> float:
    """Return the power of two times ``near`` that is nearest to a value."""
    return near * 2.0 ** round(math.log2(value / near))


def _bounded(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
