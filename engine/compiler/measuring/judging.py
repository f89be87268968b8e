"""The host that measured rates describe: what the models of cost ask of it, in the time of one product.

Rates differ a little from one measurement to the next, and choices must not: every number is brought to the nearest of
a few steps, each of which is twice the one below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from engine.compiler.codegen.host import Host, Memory
from engine.compiler.measuring.rates import DISTANCES, STRANDS, Rates

# What a byte of the last level may cost without being felt: kernels fetch ahead, and compute meanwhile.
_HIDDEN: Final = 0.04
# What of it is felt where it costs more.
_FELT: Final = 0.5
# What a byte from memory usually takes, in the time of one product.
_USUAL: Final = 0.12
# What is felt of a byte from memory where it is read as it comes, and where it is fetched in time.
_UNFORESEEN: Final = 5 / 12
_FETCHED: Final = 1 / 8
# Reading in several places is begun only for what is so much faster.
_CLEARLY: Final = 1.05
# What fetching further ahead may cost, at most: it leaves more time to whatever else a kernel waits for.
_AS_FAST: Final = 0.95
# Numbers are repeated by what loads them, which whoever shares the core uses too: they are held up by so much more than
# products are. Zen 3 (0.92 to 1.0 for each product) was seen at 0.70; no core is seen to do twice what it can.
_HELD_UP: Final = 1.2
# No core of x86 with fused products begins fewer loads than products, whatever held them up; of Arm's some do.
_LEAST_REPEATS: Final = 0.5
_LEAST_REPEATS_X86: Final = 1.0
# A chunk computes for so long at least.
_CHUNK_S: Final = 4.3e-6


def judge(host: Host, rates: Rates) -> Host:
    """A host as it was measured.

    Args:
        host: what is known of its kind; what was not measured stays.
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
            ahead_bytes=_ahead(rates.fetched, _AS_FAST) or known.ahead_bytes,
            streams=_streams(rates),
            # Whoever reads in several places does nothing else that would want more time.
            stream_ahead_bytes=_ahead(rates.stranded, 1.0) or known.stream_ahead_bytes,
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


def _ahead(fetched: Sequence[float], share: float) -> int | None:
    """How far ahead weights are fetched: the furthest with such a share of the best rate; None if that is not known."""
    if not fetched:
        return None
    least = share * max(fetched)
    return max(ahead for ahead, rate in zip(DISTANCES, fetched, strict=True) if rate >= least)


def _streams(rates: Rates) -> int:
    """In how many places weights that are used once are read in turns."""
    return STRANDS if max(rates.stranded, default=0.0) > _CLEARLY * max(rates.fetched, default=0.0) else 1


def _cost(rates: Rates, bytes_a_second: float, near: float) -> float:
    """What a byte takes, in the time of one product."""
    return _bounded(_step(rates.products / bytes_a_second, near), 1e-3, 10.0)


def _felt(cost: float) -> float:
    return max(1e-3, _FELT * (cost - _HIDDEN))


def _step(value: float, near: float) -> float:
    """The nearest of the steps, of which one is ``near``."""
    return near * 2.0 ** round(math.log2(value / near))


def _bounded(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
