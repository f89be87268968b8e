"""Cost of a kernel on a described machine: inner functions as simulated, memory as the cost models have it."""

from __future__ import annotations

from functools import cache

import numpy as np

from benchmarks.candidates.simulator import CORES, Core, Timing, timing
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module
from engine.compiler.kernels.channels import panels_of, vectors_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import ConvTile
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.products.product import Product
from engine.compiler.kernels.winograd import blocking as winograd
from engine.compiler.kernels.winograd.stages import Scratch, emit_input, emit_output, emit_product, spread
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.compiler.measuring import probes
from tests.engine.compiler.machines import MACHINES

# A branch that is guessed wrong at the end of a loop, and a call.
_MISSED = 20.0
_CHANNELS = 256


def idle_cost(chunks: int) -> float:
    """Return the cost of idle threads, as a factor averaged over the usual numbers of threads."""
    return sum(part * threads * -(-chunks // threads) / chunks for threads, part in winograd.THREADS)


class Machine:
    """Inner functions on a described machine, in units of the time of a product."""

    def __init__(self, name: str) -> None:
        self.host: Host = MACHINES[name]
        self._core: Core = CORES[name]
        peak = self._timed(probes.peak(self.host, probes.chains(self.host)), "peak")
        self.products_a_cycle = round(peak.products / peak.turn, 1)
        self.tile = cache(self._tile)
        self.product = cache(self._product)
        self.transforms = cache(self._transforms)

    def probed(self) -> dict[str, float]:
        """Return what the calibration probes would measure, a cycle."""
        host = self.host
        chain = self._timed(probes.chain(host), "chain")
        repeats = self._timed(probes.repeats(host), "repeats")
        return {
            "products": self.products_a_cycle,
            "latency": chain.turn / chain.products,
            "repeats": 8 / repeats.turn,
        }

    def _timed(self, text: str, function: str) -> Timing:
        return timing(text, function, self.host, self._core)

    def _tile(self, pixels: int, vectors: int) -> tuple[float, float]:
        """Return the times of a tile of a direct convolution: of a tap, and of all else."""
        kernel = pointwise(self.host, ConvTile(1, pixels, vectors), 4 * pixels, _CHANNELS)
        module = Module()
        kernel.emit(module)
        inner = next(name for name in module.functions if name != kernel.name)
        found = self._timed(str(module), inner)
        return self._of_sums(found, pixels * vectors)

    def _product(self, at_once: int, vectors: int, adds: bool, is_far: bool) -> tuple[float, float]:
        """Return the times of Winograd's products: of an input channel, and of all else."""
        module, pitch = Module(), spread(_CHANNELS, 16)
        scratch = Scratch(Filtering(4, 1), pitch, pitch, 64 * pitch, 64 * pitch)
        ahead = 3 * self.host.memory.ahead_bytes // 4 if is_far and at_once >= winograd.FETCH_TILES else 0
        panel = [self.host.lanes] * vectors
        emit_product(module, "product", scratch, panel, at_once, unroll=4, ahead=ahead, adds=adds)
        return self._of_sums(self._timed(str(module), "product"), at_once * vectors)

    def _of_sums(self, found: Timing, sums: int) -> tuple[float, float]:
        turns = found.products / sums
        return found.turn / turns * self.products_a_cycle, (found.rest + _MISSED) * self.products_a_cycle

    def _transforms(self, filtering: Filtering) -> tuple[float, float]:
        """Return the times of a vector of channels of a tile: transformed in and out."""
        host, pitch = self.host, spread(_CHANNELS, 16)
        scratch = Scratch(filtering, pitch, pitch, 8 * pitch, 8 * pitch)
        strides = Strides(n=0, h=64 * _CHANNELS, w=_CHANNELS, c=1)
        module = Module()
        emit_input(module, "input", scratch, strides, (66, 66), _CHANNELS, host.lanes)
        emit_output(module, "output", scratch, strides, (64, 64), (0, 0), Epilogue(), host.lanes, host.lanes)
        into, out = (self._timed(str(module), each) for each in ("input", "output"))
        return into.turn * self.products_a_cycle, (out.turn + out.rest + _MISSED) * self.products_a_cycle

    def direct(self, kernel: Conv, tile: ConvTile) -> float:
        """Return the time of a direct convolution with a tile, in times of a product."""
        across = -(-kernel.columns // tile.columns)
        panels = panels_of(kernel.out_channels, self.host.lanes, tile.vectors)
        total = 0.0
        for panel in panels:
            tap, rest = self.tile(tile.rows * tile.columns, len(panel))
            total += across * (kernel.taps * tap + rest)
        total *= kernel.batch * kernel.groups * -(-kernel.rows // tile.rows)
        lanes = self.host.lanes * len(vectors_of(kernel.out_channels, self.host.lanes))
        return winograd._bounded(self.host, total, 4 * kernel.groups * kernel.taps * lanes)

    def winograd(self, work: winograd._Work, b: winograd.Blocking) -> float:
        """Return the time of a Winograd convolution with a blocking: the cost model with simulated parts."""
        blocks, groups = -(-work.tiles // b.tiles), -(-work.count // (b.vectors * b.panels))
        depth = min(b.depth, work.in_channels)
        depths = -(-work.in_channels // depth) * work.filtering.rounds
        repeats = sum(run.count * -(-b.tiles * run.repeats // b.at_once) for run in work.filtering.runs)
        is_far = work.weights > self.host.memory.second_bytes // 2
        sums = 0.0
        for vectors, panels in ((b.vectors, work.count // b.vectors), (work.count % b.vectors, 1)):
            if vectors and panels:
                tap, rest = self.product(b.at_once, vectors, depths > 1, is_far)
                sums += panels * (work.filtering.rounds * work.in_channels * tap + depths * rest)
        into, out = self.transforms(work.filtering)
        in_vectors = -(-work.in_channels // self.host.lanes) * work.filtering.rounds
        total = blocks * repeats * sums
        total += blocks * b.tiles * (groups * in_vectors * into + work.count * out)
        total += self._moved(work, b, blocks, groups, depths, repeats)
        return winograd._bounded(self.host, total * idle_cost(blocks * groups), work.weights)

    def _moved(
        self, work: winograd._Work, b: winograd.Blocking, blocks: int, groups: int, depths: int, repeats: int
    ) -> float:
        """Return what the cost model adds for memory and chunks."""
        memory = self.host.memory
        sizes = winograd._Blockings(
            *(np.array([value]) for value in (b.tiles, b.at_once, b.vectors, b.panels, b.depth))
        )
        total = float(work._streamed(sizes, np.array([blocks]))[0])
        total += work.weights / work.filtering.weights * blocks * repeats * memory.repeat_cost
        spilled = max(0.0, float(work.scratch(sizes)[0]) - winograd.SCRATCH_SHARE * memory.second_bytes)
        return (
            total + spilled * blocks * groups * depths * memory.spilled_cost + blocks * groups * winograd.CHUNK_CYCLES
        )

    def stacked(self, kernel: Product, rows: int, vectors: int) -> float:
        """Return the time of batched products with this many rows and vectors a tile, in times of a product."""
        total = 0.0
        for panel in panels_of(kernel.columns, self.host.lanes, vectors):
            tap, rest = self.tile(rows, len(panel))
            total += kernel.terms * tap + rest
        return kernel.stack[0] * kernel.stack[1] * -(-kernel.rows // rows) * total


def pointwise(host: Host, tile: ConvTile, pixels: int, channels: int, panels: int = 1) -> Conv:
    """Return a 1×1 convolution of a row of pixels, a cache line apart, to this many panels of channels."""
    pitch = channels + host.memory.line_floats
    n = panels * tile.vectors * host.lanes
    return Conv(
        host=host,
        batch=1,
        rows=1,
        columns=pixels,
        source=Strides(n=0, h=pixels * pitch, w=pitch, c=1),
        target=Strides(n=0, h=pixels * n, w=n, c=1),
        in_channels=channels,
        out_channels=n,
        groups=1,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        tile=tile,
    )
