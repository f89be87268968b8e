"""Steps that follow each other, computed a band of rows at a time, where that costs less.

What a step writes for the next one alone need not lie in the arena: see kernels/strip. It saves the way through the
last-level cache, and costs rows that are computed for two bands, so it is for what the second-level cache does not
hold, on machines where that way is felt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.map import Map
from engine.compiler.kernels.strip import STACK_BYTES, Argument, Band, Stage, Strip
from engine.compiler.kernels.winograd.blocking import THREADS
from engine.compiler.lowering.steps import KernelStep, Pointer, ReferenceStep, Step
from engine.compiler.lowering.strips.bands import Banded, banded, banded_map
from engine.compiler.places import Home
from engine.compiler.storage import Storage

# The share of the second-level cache that a band may take.
BAND_SHARE: Final = 1 / 2
# The share of it that holds what a step writes for the next one, until that has read it and written its own.
HELD_SHARE: Final = 1 / 2
# There is at least one band for so many of the chunks that a kernel should fall into.
FEWEST_SHARE: Final = 2
# The overhead of a band, in multiply-adds: tables, zeros at its sides, tiles cut short.
BAND_CYCLES: Final = 2000.0
# Steps of one strip.
MOST_LINKS: Final = 6
# What a strip must save to be worth it.
WORTH: Final = 0.95


@dataclass(frozen=True, slots=True)
class Link:
    """A step of a strip.

    Args:
        between: where it lies between this one and the next, as if whole; None of the last one.
        gap: there, floats from its beginning to where the next one reads first.
        padding: rows before the first that the first row of the next one reads.
    """

    step: KernelStep
    rows: Banded
    between: Band | None = None
    gap: int = 0
    padding: int = 0


def with_strips(steps: Sequence[Step], kept: Collection[Storage], alone: Collection[str], host: Host) -> list[Step]:
    """The steps, some of them made one.

    Args:
        kept: what is read after the last of them.
        alone: operators whose steps stay as they are.
    """
    uses = _uses(steps)
    result: list[Step] = []
    index = 0
    while index < len(steps):
        chain = _chain(steps, index, uses, kept, alone, host)
        length, band = _best(chain, host)
        if length > 1:
            result.append(_strip(_first(chain, length), band, host))
        else:
            result.append(steps[index])
        index += length
    return result


def _best(chain: Sequence[Link], host: Host) -> tuple[int, int]:
    """How many links from the first on are best computed together, and how many rows of the last are a band."""
    best, choice = 1.0, (1, 1)
    most_bytes = min(STACK_BYTES, BAND_SHARE * host.memory.second_bytes)
    for length in range(2, len(chain) + 1):
        part = _first(chain, length)
        products = [_products(link, host) for link in part]
        plain = sum(products) + sum(_moved_cycles(link, host) for link in part)
        for band in range(1, _highest(part[-1].rows, host) + 1):
            heights = _heights(part, band)
            if _bytes(part, heights) > most_bytes:
                break
            ratio = _cycles(part, products, heights, host) / (WORTH * plain)
            if ratio < best:
                best, choice = ratio, (length, band)
    return choice


def _highest(rows: Banded, host: Host) -> int:
    """Rows of the highest bands that are enough for several threads."""
    return max(1, rows.rows * rows.batch * FEWEST_SHARE // host.wanted_chunks)


def _first(chain: Sequence[Link], length: int) -> list[Link]:
    """The first links of a chain, as a chain: what the last of them writes is its result."""
    return [*chain[: length - 1], replace(chain[length - 1], between=None)]


def _is_far(link: Link, host: Host) -> bool:
    """Whether the second-level cache does not hold what a link writes for the next."""
    held_bytes = HELD_SHARE * host.memory.second_bytes
    return link.between is not None and 4 * link.rows.batch * link.between.floats > held_bytes


def _moved_cycles(link: Link, host: Host) -> float:
    """What it costs that a step by itself writes what the next one has to fetch."""
    moved = 2 * 4 * link.rows.batch * link.between.floats if link.between and _is_far(link, host) else 0
    return moved * host.memory.stream_cost


def _cycles(chain: Sequence[Link], products: Sequence[float], heights: Sequence[int], host: Host) -> float:
    """What they cost together, averaged over numbers of threads.

    Args:
        products: cycles that each of them computes by itself.
    """
    last = chain[-1].rows
    bands = -(-last.rows // heights[-1])
    total = bands * last.batch * BAND_CYCLES
    for link, cycles, height in zip(chain, products, heights, strict=True):
        total += cycles * height * bands / link.rows.rows
        total += bands * last.batch * link.rows.weights * host.memory.repeat_cost
    chunks = bands * last.batch
    return total * sum(part * threads * -(-chunks // threads) / chunks for threads, part in THREADS)


def _products(link: Link, host: Host) -> float:
    """What a step computes, in cycles."""
    finishing = link.rows.bytes / 4 * link.rows.finishing
    return (link.step.kernel.flops / 2 + finishing) / host.lanes


def _bytes(chain: Sequence[Link], heights: Sequence[int]) -> int:
    """What lies between the links of a band."""
    pairs = zip(chain[:-1], heights[:-1], strict=True)
    return sum(4 * link.between.floats_of(height) for link, height in pairs if link.between)


def _uses(steps: Sequence[Step]) -> dict[Storage, int]:
    """How many arguments lie in each storage."""
    uses: dict[Storage, int] = {}
    for step in steps:
        for storage in _storages(step):
            uses[storage] = uses.get(storage, 0) + 1
    return uses


def _storages(step: Step) -> list[Storage]:
    if isinstance(step, ReferenceStep):
        return [view.storage for view in (*step.inputs, *step.outputs) if view is not None]
    return [each.storage for each in step.pointers]


def _chain(
    steps: Sequence[Step],
    index: int,
    uses: Mapping[Storage, int],
    kept: Collection[Storage],
    alone: Collection[str],
    host: Host,
) -> list[Link]:
    """A chain from a step on; none where it cannot be the first of one, or what it writes does not go far."""
    chain: list[Link] = []
    for before, step in pairwise(steps[index : index + MOST_LINKS]):
        if not isinstance(before, KernelStep) or not isinstance(step, KernelStep):
            break
        rows = banded(step.kernel)
        linked = None if rows is None else _linked(before, step, rows)
        if rows is None or linked is None or uses[linked[0]] != 2 or linked[0] in kept:
            break
        if before.operators[0] in alone or step.operators[0] in alone:
            break
        if not chain and not _is_far(linked[1], host):
            break
        chain[-1:] = [linked[1], Link(step, rows)]
    return chain


def _linked(first: KernelStep, second: KernelStep, reader: Banded) -> tuple[Storage, Link] | None:
    """A step as the link before another that reads, row by row, what it writes; and where that lies."""
    writer = banded(first.kernel)
    if type(first.kernel) is Map:
        writer = banded_map(first.kernel, reader.source, reader.batch)
    if writer is None or writer.is_whole or writer.batch != reader.batch:
        return None
    written, read = first.pointers[writer.result], second.pointers[reader.reads]
    storage, image, source = written.storage, writer.target, reader.source
    if read.storage is not storage or storage.home is not Home.ARENA:
        return None
    if (image.h, image.w) != (source.h, source.w) or (writer.batch > 1 and image.n != source.n):
        return None
    if not 0 < image.w <= image.h or image.h % image.w:
        return None
    border = storage.frame.border if storage.frame else (0, 0, 0, 0)
    band = Band(rows=writer.rows, columns=image.h // image.w, pitch=image.w, border=border)
    is_all = storage.bytes == 4 * band.floats * writer.batch and written.offset == 4 * band.first
    if not is_all or read.offset % (4 * band.pitch):
        return None
    gap = read.offset // 4
    padding = border[0] - gap // band.row_floats + reader.padding
    return storage, Link(first, writer, band, gap, padding)


def _strip(chain: Sequence[Link], band: int, host: Host) -> KernelStep:
    """The step of a chain in bands of so many rows of its last result."""
    heights = _heights(chain, band)
    pointers: list[Pointer] = []
    stages: list[Stage] = []
    for index, (link, height) in enumerate(zip(chain, heights, strict=True)):
        rows, before = link.rows, chain[index - 1] if index else None
        target = None if link.between is None else replace(link.between, rows=height)
        arguments: list[Argument] = []
        for k, (pointer, (image, row)) in enumerate(zip(link.step.pointers, rows.moves, strict=True)):
            if target is not None and k == rows.result:
                arguments.append(Argument(index=None, is_own=True, offset=target.first))
            elif before is not None and k == rows.reads:
                arguments.append(Argument(index=None, offset=before.gap, row=row, before=-rows.source.h))
            else:
                arguments.append(Argument(index=len(pointers), image=image, row=row))
                pointers.append(pointer)
        stages.append(
            Stage(
                kernel=rows.make(height),
                arguments=tuple(arguments),
                rows=rows.rows,
                band=height,
                stride=rows.stride,
                padding=before.padding if before else 0,
                target=target,
                is_whole=rows.is_whole,
            )
        )
    kernel = Strip(host=host, batch=chain[0].rows.batch, count=len(pointers), stages=tuple(stages))
    operators = tuple(name for link in chain for name in link.step.operators)
    moved = sum(link.step.bytes for link in chain) - 2 * sum(link.rows.bytes for link in chain[:-1])
    return KernelStep(kernel=kernel, pointers=tuple(pointers), operators=operators, bytes=moved)


def _heights(chain: Sequence[Link], band: int) -> list[int]:
    """Rows that every link computes for a band of the last one's."""
    heights = [band]
    for link, following in zip(chain[-2::-1], chain[:0:-1], strict=True):
        heights.insert(0, min(link.rows.rows, following.rows.under(heights[0])))
    return heights
