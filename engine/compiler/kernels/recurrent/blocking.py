"""How a step is cut: units whose gates are summed together, and rows of the batch that share their weights."""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.channels import vectors_of
from engine.compiler.kernels.recurrent.ahead import Ahead
from engine.ir.dims import hint

# Vectors of units, rows and parts of a sum that are tried.
MOST_VECTORS = 8
MOST_ROWS = 8
SPLITS = (1, 2, 4)
# What comes from the second-level cache in a cycle while products are summed, as measured on Zen 4 and Zen 5, and the
# cycles that a sum waits for its product; and in products of two vectors what a vector of units takes beside its sums.
FAR_BYTES = 32
LATENCY = 4
FINISH = 60
# Threads share a step of which the weights are so many times what the second-level cache holds. It falls into this many
# groups at most; the weights of one take a part of that cache, for those from far are late again at every beginning.
SHARED_SIZE = 3 / 2
MOST_GROUPS = 16
GROUP_SHARE = 1 / 2
# Share of the first-level cache that a panel's weights may take to be read from there again.
NEAR_SHARE = 3 / 4
# Where the input's product is done between: sums of the recurrence at least, steps of a job, and registers for what is
# multiplied.
SUMS = 8
FEWEST_STEPS, MOST_STEPS = 5, 8
SPARE = 6


@dataclass(frozen=True, slots=True)
class Blocking:
    """What is held in registers.

    Args:
        vectors: of units, every gate of them.
        rows: of the batch.
        splits: parts that each sum is made in, so that products need not wait for each other.
    """

    vectors: int
    rows: int
    splits: int


def choose_blocking(host: Host, *, gates: int, units: int, taps: int, batch: int) -> Blocking:
    """The blocking with which a step takes least.

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


def choose_ahead(
    host: Host, *, gates: int, units: int, steps: int, batch: int, width: int
) -> tuple[Blocking, Ahead] | None:
    """How to do the input's product between the recurrence's own products; None where that would not pay.

    It does where these wait for weights, which come from far and serve a single row, and where registers hold both.

    Args:
        width: of the input.
    """
    count, rest = divmod(units, host.lanes)
    is_far = 4 * gates * units * units > host.memory.first_bytes
    if rest or batch > 1 or not is_far:
        return None
    fitting = [each for each in range(1, count + 1) if count % each == 0 and gates * each >= SUMS]
    parts = -(-width // units)
    # A narrow input is spread over as many calls as there are.
    vectors = 1 if 2 * width <= units else 2
    if not fitting or gates * fitting[0] > 2 * SUMS or width % parts or count * gates % vectors:
        return None
    block = min(MOST_STEPS, (host.registers - SPARE - gates * fitting[0]) // vectors)
    if block < FEWEST_STEPS or hint(steps) < 2 * block:
        return None
    return Blocking(fitting[0], 1, 1), Ahead(width, block, vectors, width // parts)


def is_shared(host: Host, *, weight_bytes: int, batch: int) -> bool:
    """Whether threads share every step: few rows read weights from far, which all cores together have nearer.

    The input's product is made before, for all steps at once, then.
    """
    return batch <= MOST_ROWS and weight_bytes > SHARED_SIZE * host.memory.second_bytes


def choose_groups(host: Host, *, weight_bytes: int, panels: int) -> int:
    """Parts that a shared step falls into."""
    return max(1, min(panels, MOST_GROUPS, int(weight_bytes / (GROUP_SHARE * host.memory.second_bytes))))


def _registers(gates: int, blocking: Blocking) -> int:
    """Sums, an input value of every row, a vector of weights, and one to spare."""
    return blocking.rows * (blocking.splits * gates * blocking.vectors + 1) + 2


def _cost(host: Host, blocking: Blocking, *, gates: int, count: int, taps: int, batch: int) -> float:
    """What a step takes, in products: those, the latency of adding to too few sums, loads, or weights from far.

    A panel's weights come from far for the first rows it is multiplied by; for the others, too, unless it fits the
    nearest cache.
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
