"""Choice and blocking of a Winograd convolution, by a cost model.

Costs are in the time of one product of two vectors, about a cycle. Constants were fitted to measurements on a core with
512-bit vectors and 1 MB of L2 cache. Their ratios hold elsewhere: products wasted on overlapping tiles, repeated
transforms, weights streamed again, memory beyond the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Sizes
from engine.compiler.kernels.channels import vectors_of
from engine.compiler.kernels.winograd.stages import spread
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.ir.dims import is_symbolic, smallest

IntArray: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[Any]

# Shares of the L2 cache for a chunk's scratch memory, and for that plus all weights; of the last level for weights.
SCRATCH_SHARE = 3 / 16
CACHE_SHARE = 13 / 16
LAST_SHARE = 1 / 2
# Largest stack of a chunk.
STACK_BYTES = 1000 * 1024
# Fewest tiles at once that leave time to prefetch weights.
FETCH_TILES = 6
# Cycles of a 6×6 transform of one vector of channels, in and out; of a call and of a chunk; of storing a sum, and of
# adding to one.
INPUT_CYCLES = 190.0
OUTPUT_CYCLES = 170.0
CALL_CYCLES = 5.0
# Pixels of a tile are scattered in memory: with a slow last-level cache, transforms wait for them. Extra share of the
# transform's cycles, times the cost of a byte. Measured on an Intel Xeon, where layers take up to six times these
# cycles besides products.
FAR_PIXELS = 40.0
# Loads in the time of a product for which the cycles of transforms and sums were measured; and cycles of a panel's
# prologue and epilogue, which few channels do not hide on cores with twice the loads. For row tiles only; FAR_PIXELS
# covers two dimensions. Measured on an Intel Xeon.
LOADS = 2.0
PANEL_CYCLES = 115.0
CHUNK_CYCLES = 1500.0
SET_CYCLES = 0.75
ADD_CYCLES = 1.4
# Weights of running with one, two and four threads.
THREADS = ((1, 0.6), (2, 0.3), (4, 0.1))
# Cost of a transform in one dimension relative to two.
LINE_SHARE = 0.6
MOST_TILES = 64
# A layer with more transformed weights uses a form with half as many, unless that takes this many times as long: for
# 1024 to 1024 channels, tiles of 4×4 have 144 MB, of 2×2 64 MB.
LARGE_BYTES = 64 << 20
MUCH_LONGER = 1.8
MOST_GROUPS = 16
# Cycles of a direct convolution relative to its products, and the share of them Winograd must stay below.
DIRECT = 1.03
WORTH = 0.9
# Candidate output tiles by stride.
OFFERED = {1: (4, 2), 2: (4, 3, 2)}
# Products of a row tile, and the number of filter splits that are tried.
ROW_PRODUCTS = (8, 6)
ROW_WAYS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """Sizes of a chunk and of a register tile.

    Args:
        tiles: output tiles of a chunk; a multiple of ``at_once`` if there is more than one depth.
        at_once: tiles multiplied at once.
        vectors: output channels multiplied at once, in vectors.
        panels: output channels of a chunk, in multiples of ``vectors``.
        depth: input channels transformed and summed at a time; a multiple of the vector width.
        room: tiles the chunk's memory is reserved for, if the number of tiles is dynamic; else None.
    """

    tiles: int
    at_once: int
    vectors: int
    panels: int
    depth: int
    room: int | None = None

    def dynamic(self, sizes: Sizes) -> Self:
        """Return this blocking with a dynamic number of tiles, if memory is reserved for it."""
        return self if self.room is None else replace(self, tiles=sizes.dynamic_count(self.tiles))

    def within(self, tiles: int) -> Self:
        """Return this blocking for images with this many tiles, which may be symbolic."""
        if not is_symbolic(tiles):
            return self
        most = max(self.tiles // self.at_once, 1)
        count = self.at_once * smallest(most, -(-tiles // self.at_once))
        return replace(self, tiles=count, room=self.at_once * most)


@dataclass(frozen=True, slots=True)
class _Blockings:
    """Arrays of blockings: a network has dozens of convolutions with a thousand candidates each."""

    tiles: IntArray
    at_once: IntArray
    vectors: IntArray
    panels: IntArray
    depth: IntArray


@dataclass(frozen=True, slots=True)
class _Work:
    """Inputs of the cost model: tiles, channels, vectors of output channels, planes of taps."""

    host: Host
    tiles: int
    filtering: Filtering
    in_channels: int
    count: int
    planes: int = 1

    @property
    def parts(self) -> int:
        """Return the parts of the filters that are summed."""
        return self.planes * self.filtering.rounds

    @property
    def weights(self) -> int:
        """Return the bytes of the transformed weights."""
        return 4 * self.parts * self.filtering.weights * self.in_channels * self.count * self.host.lanes

    @property
    def cache_excess(self) -> float:
        """Return the excess of images and weights over the L2 cache, as a share of its size from 0 to 1.

        It is 0 for row tiles: their pixels are contiguous and arrive in time.
        """
        if self.filtering.is_row:
            return 0.0
        down, across = self.filtering.tile
        channels = self.filtering.stride**2 * self.in_channels + self.count * self.host.lanes
        image_bytes = 4 * self.tiles * down * across * channels
        return min(max((image_bytes + self.weights) / self.host.memory.second_bytes - 1, 0.0), 1.0)

    @property
    def exposed(self) -> float:
        """Return the extra time of a row's transforms and sums relative to products; 0 if they are hidden."""
        return max(LOADS / self.host.repeats_a_product - 1, 0.0) if self.filtering.is_row else 0.0

    def scratch(self, b: _Blockings) -> IntArray:
        """Return the bytes of a chunk's scratch memory."""
        channels = np.minimum(b.depth, self.in_channels)
        channels = channels + np.minimum(self.count, b.vectors * b.panels) * self.host.lanes
        count: IntArray = 4 * self.filtering.positions * b.tiles * channels
        return count

    def stack(self, b: _Blockings) -> IntArray:
        """Return the bytes a chunk reserves: scratch memory with padding between tiles."""
        line, lanes = self.host.memory.line_floats, self.host.lanes
        channels = -(-np.minimum(b.depth, self.in_channels) // lanes) * lanes
        sums = np.minimum(self.count, b.vectors * b.panels) * lanes
        floats = spread(channels, line) + spread(sums, line)
        count: IntArray = 4 * self.filtering.positions * b.tiles * floats
        return count

    def products(self, tiles: IntArray, vectors: IntArray) -> FloatArray:
        """Return the cycles of one input channel of some tiles: products, or latency, weights or loads."""
        loads, waiting = (tiles + vectors) / self.host.repeats_a_product, 1.125 * self.host.products_in_flight
        slowest = np.maximum.reduce([tiles * vectors, (tiles + 3.5) * vectors / 2, loads * 1.1])
        cycles: FloatArray = np.where(vectors > 0, np.maximum(slowest, waiting) + loads * 0.05, 0)
        return cycles

    def cost(self, b: _Blockings) -> FloatArray:
        """Return the cycles of one core, averaged over numbers of threads that share the chunks."""
        blocks, groups = -(-self.tiles // b.tiles), -(-self.count // (b.vectors * b.panels))
        depth = np.minimum(b.depth, self.in_channels)
        depths, runs = -(-self.in_channels // depth) * self.parts, self.filtering.runs
        repeats = np.add.reduce([run.count * -(-b.tiles * run.repeats // b.at_once) for run in runs])
        whole, rest = self.count // b.vectors, self.count % b.vectors
        panels, sums = whole + (rest > 0), blocks * repeats * depths
        products = whole * self.products(b.at_once, b.vectors) + self.products(b.at_once, rest)
        total = sums * (self.parts * self.in_channels / depths * products + CALL_CYCLES * panels)
        total += sums * b.at_once * self.count * np.where(depths > 1, ADD_CYCLES, SET_CYCLES)
        in_vectors = -(-self.in_channels // self.host.lanes) * self.parts
        share = self.filtering.positions / 36 * (LINE_SHARE if self.filtering.is_row else 1)
        share *= 1 + FAR_PIXELS * self.cache_excess * self.host.memory.late_cost
        transforms = share * blocks * b.tiles * (groups * in_vectors * INPUT_CYCLES + self.count * OUTPUT_CYCLES)
        total += (1 + self.exposed) * transforms
        total += self.exposed * sums * (b.at_once * self.count * ADD_CYCLES + PANEL_CYCLES * panels)
        total += self._streamed(b, blocks)
        memory, scratch = self.host.memory, self.scratch(b)
        total += self.weights / self.filtering.weights * blocks * repeats * memory.repeat_cost
        spilled = np.maximum(0, scratch - SCRATCH_SHARE * memory.second_bytes)
        total += spilled * blocks * groups * depths * memory.spilled_cost
        chunks = blocks * groups
        total += chunks * CHUNK_CYCLES
        shared = [part * threads * -(-chunks // threads) / chunks for threads, part in THREADS]
        cycles: FloatArray = total * np.add.reduce(shared)
        return cycles

    def _streamed(self, b: _Blockings, blocks: IntArray) -> FloatArray:
        """Return the cycles to load weights beyond the L2 cache, once for every block of tiles."""
        weights, memory = self.weights, self.host.memory
        first = np.where(b.at_once >= FETCH_TILES, memory.fetched_cost, memory.memory_cost)
        next_cost = memory.stream_cost if weights <= LAST_SHARE * memory.last_bytes else first
        is_far = weights + self.scratch(b) > CACHE_SHARE * memory.second_bytes
        return np.where(is_far, weights * (first + (blocks - 1) * next_cost), 0)


def _candidates(work: _Work) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield tiles, tiles at once, vectors, panels and depth of every candidate."""
    for vectors in range(1, min(4, work.count) + 1):
        panels = -(-work.count // vectors)
        sizes = sorted({-(-panels // groups) for groups in range(1, min(panels, MOST_GROUPS) + 1)})
        limit = max(1, min(work.tiles, work.host.most_rows(vectors)))
        for at_once in range(max(1, limit // 3), limit + 1):
            for depths in (1, 2, 4):
                depth = -(-work.in_channels // (depths * 16)) * 16
                if depths > 1 and depth < 32:
                    break
                for tiles in sorted({min(at_once * k, work.tiles) for k in range(1, MOST_TILES // at_once + 1)}):
                    if depths * work.parts > 1 and tiles % at_once:
                        continue
                    for size in sizes:
                        yield tiles, at_once, vectors, size, depth


def choose_blocking(
    host: Host,
    filtering: Filtering,
    rows: int,
    columns: int,
    in_channels: int,
    out_channels: int,
    batch: int,
    *,
    planes: int = 1,
) -> Blocking:
    """Return the cheapest blocking for images of rows × columns.

    Args:
        planes: of taps, where images are planes of volumes.
    """
    work = _work(host, filtering, rows, columns, in_channels, out_channels, batch, planes)
    return _best(work)[1]


@lru_cache(maxsize=256)
def _best(work: _Work) -> tuple[float, Blocking]:
    """Return the cost of the best blocking, and the blocking."""
    least = (1, 1, 1, 1, 32)
    tried = _Blockings(*np.array([*_candidates(work)] or [least]).T)
    cost = np.where(work.stack(tried) <= STACK_BYTES, work.cost(tried), np.inf)
    best = int(np.argmin(cost))
    if cost[best] == np.inf:
        tried, best = _Blockings(*np.array([least]).T), 0
        cost = work.cost(tried)
    names = [each.name for each in fields(tried)]
    return float(cost[best]), Blocking(**{name: int(getattr(tried, name)[best]) for name in names})


def _work(
    host: Host,
    filtering: Filtering,
    rows: int,
    columns: int,
    in_channels: int,
    out_channels: int,
    batch: int,
    planes: int,
) -> _Work:
    down, across = filtering.tile
    tiles = batch * -(-rows // down) * -(-columns // across)
    count = len(vectors_of(out_channels, host.lanes))
    return _Work(host, tiles, filtering, in_channels, count, planes)


def choose_filtering(
    host: Host,
    offered: Sequence[Filtering],
    rows: int,
    columns: int,
    in_channels: int,
    out_channels: int,
    batch: int,
    *,
    planes: int = 1,
    speed: float = 1.0,
) -> Filtering | None:
    """Return the fastest Winograd convolution to images of rows × columns; None if a direct one is as fast.

    Forms that need much memory for little time are chosen last. Weights are assumed to come from memory, as in a
    network larger than the caches.

    Args:
        offered: candidates for one kernel.
        planes: of taps, where images are planes of volumes.
        speed: of the direct one, relative to float32.
    """
    count, taps = len(vectors_of(out_channels, host.lanes)), planes * math.prod(offered[0].kernel)
    products = batch * rows * columns * taps * in_channels * count * DIRECT
    least = 4 * taps * in_channels * count * host.lanes
    direct = _bounded(host, products / speed, least)
    found: list[tuple[float, int, Filtering | None]] = [(direct * WORTH, least, None)]
    for filtering in offered:
        work = _work(host, filtering, rows, columns, in_channels, out_channels, batch, planes)
        cycles = _bounded(host, _best(work)[0], work.weights)
        found.append((cycles, work.weights, filtering))
    most = MUCH_LONGER * min(cycles for cycles, *_ in found)

    def key(each: tuple[float, int, Filtering | None]) -> tuple[bool, float]:
        cycles, weights, _ = each
        is_memory_hungry = weights > LARGE_BYTES and any(
            2 * other <= weights and its <= most for its, other, _ in found
        )
        return is_memory_hungry, cycles

    return min(found, key=key)[2]


def offered_for(kernel: tuple[int, int], stride: int, columns: int, *, is_even: bool = True) -> list[Filtering]:
    """Return the forms for a kernel whose rounding error is near that of direct sums, for images of this width.

    3×3 filters are transformed whole; other filters of stride 1 by rows, in the splits with the fewest products.

    Args:
        is_even: whether the images of every d-th pixel have equal sizes, as whole filters require.
    """
    if kernel == (3, 3) and is_even:
        return [Filtering(output_tile, stride) for output_tile in OFFERED.get(stride, ())]
    if stride != 1 or kernel[1] < 2:
        return []
    rows = [
        Filtering(count - taps + 1, 1, kernel, taps)
        for count in ROW_PRODUCTS
        for taps in range(2, min(kernel[1], count - 1) + 1)
    ]
    fitting = [each for each in rows if each.output_tile <= columns]

    def products(each: Filtering) -> float:
        return each.rounds * each.positions * -(-columns // each.output_tile)

    return sorted(fitting, key=products)[:ROW_WAYS]


def _bounded(host: Host, cycles: float, weights: int) -> float:
    """Return the cycles of arithmetic, or of loading weights from memory if that takes longer, over thread counts."""
    least = weights * host.memory.shared_cost
    return sum(share * threads * max(cycles / threads, least) for threads, share in THREADS)
