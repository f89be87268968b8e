"""Blocking of a step: units whose gates are summed together, and rows of the batch that share their weights."""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.channels import vectors_of
from engine.ir.dims import hint

# Candidates: vectors of units, rows and partial sums.
MOST_VECTORS = 8
MOST_ROWS = 8
SPLITS = (1, 2, 4)
# Bytes per cycle from the second-level cache while products are summed, measured on Zen 4 and Zen 5; latency of a
# product in cycles; and the cost of a vector of units besides its sums, in products of two vectors.
FAR_BYTES = 32
LATENCY = 4
FINISH = 60
# Threads share a step whose weights exceed the second-level cache by this factor. It is split into at most this many
# groups. The weights of one take this share of that cache, because each group begins with a latency from far memory.
SHARED_SIZE = 3 / 2
MOST_GROUPS = 16
GROUP_SHARE = 1 / 2
# Weights of a panel up to this share of the first-level cache are assumed to stay in it.
NEAR_SHARE = 3 / 4
# Steps of a block whose input is projected at once, vectors of gates summed together, and registers for operands.
STEPS, GATE_VECTORS = 8, 2
SPARE = 6


@dataclass(frozen=True, slots=True)
class Blocking:
    """Register blocking.

    Args:
        vectors: of units, every gate of them.
        rows: of the batch.
        splits: independent partial sums of each sum, which hide the latency of products.
    """

    vectors: int
    rows: int
    splits: int


@dataclass(frozen=True, slots=True)
class Hoisting:
    """Blocking of an input projection that the kernel computes block by block of steps.

    Args:
        width: of the input.
        steps: of a block.
        vectors: of gates that are summed together, for all steps of a block.
    """

    width: int
    steps: int
    vectors: int


def choose_blocking(host: Host, *, gates: int, units: int, taps: int, batch: int) -> Blocking:
    """Return the blocking with the least cost of a step.

    Args:
        gates: of a unit.
        taps: products summed for one gate.
    """
    count = len(vectors_of(units, host.lanes))
    best: tuple[float, Blocking] | None = None
    for rows in range(1, min(batch, MOST_ROWS) + 1):
        for vectors in range(1, min(count, MOST_VECTORS) + 1):
            for splits in SPLITS:
                blocking = Blocking(vectors, rows, splits)
                if (vectors, rows, splits) != (1, 1, 1) and _registers(gates, blocking) > host.registers:
                    continue
                total = _cost(host, blocking, gates=gates, count=count, taps=taps, batch=batch)
                if best is None or total < best[0]:
                    best = total, blocking
    assert best is not None
    return best[1]


def choose_hoisting(host: Host, *, gates: int, units: int, steps: int, batch: int, width: int) -> Hoisting | None:
    """Return the blocking of the input projection of a layer that can be pipelined with the layer below; else None.

    It pays if weights beyond the first-level cache serve a single row.

    Args:
        width: of the input.
    """
    count, rest = divmod(units, host.lanes)
    is_far = 4 * gates * units * units > host.memory.first_bytes
    if rest or batch > 1 or not is_far or hint(steps) < 2 * STEPS or host.registers < STEPS * GATE_VECTORS + SPARE:
        return None
    return Hoisting(width, STEPS, 1 if count * gates % GATE_VECTORS else GATE_VECTORS)


def is_shared(host: Host, *, weight_bytes: int, batch: int) -> bool:
    """Return whether threads share every step: few rows use weights that only the caches of several cores can hold.

    The input projection is then computed beforehand for all steps.
    """
    return batch <= MOST_ROWS and weight_bytes > SHARED_SIZE * host.memory.second_bytes


def choose_groups(host: Host, *, weight_bytes: int, panels: int) -> int:
    """Return the number of groups of panels in a shared step."""
    return max(1, min(panels, MOST_GROUPS, int(weight_bytes / (GROUP_SHARE * host.memory.second_bytes))))


def _registers(gates: int, blocking: Blocking) -> int:
    """Return the registers needed: sums, a state value per row, a vector of weights, and one spare."""
    return blocking.rows * (blocking.splits * gates * blocking.vectors + 1) + 2


def _cost(host: Host, blocking: Blocking, *, gates: int, count: int, taps: int, batch: int) -> float:
    """Return the cost of a step, in products: the largest of products, their latency, loads and second-level reads.

    A panel's weights come from the second level for the first rows; for all rows unless they fit in the first level.
    """
    vector_bytes, first_bytes = 4 * gates * host.lanes * taps, host.memory.first_bytes
    far_weight = 4 * host.lanes / FAR_BYTES * host.products_in_flight / LATENCY
    is_far = count * vector_bytes > first_bytes // 2
    total, is_first = 0.0, True
    for rows, tiles in ((blocking.rows, batch // blocking.rows), (batch % blocking.rows, 1)):
        if rows == 0 or tiles == 0:
            continue
        for vectors, panels in ((blocking.vectors, count // blocking.vectors), (count % blocking.vectors, 1)):
            if vectors == 0:
                continue
            sums = rows * gates * vectors
            loads = 1.1 * (gates * vectors + rows) / host.repeats_a_product
            near = max(sums, host.products_in_flight / blocking.splits, loads)
            far = max(near, far_weight * gates * vectors if is_far else 0.0)
            anew = int(is_first) if vectors * vector_bytes <= NEAR_SHARE * first_bytes else tiles
            parts = (blocking.splits - 1) * sums / 2
            total += panels * taps * (anew * far + (tiles - anew) * near)
            total += panels * tiles * (40 + 2.5 * sums + parts + FINISH * rows * vectors)
        is_first = False
    return total
