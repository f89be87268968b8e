"""Candidates for the kernels of a network, and the best of them on a simulated core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import engine
from benchmarks.candidates.machine import Machine
from engine.compiler.codegen.host import Host
from engine.compiler.kernels.channels import vectors_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import PANEL_SIZES, ConvTile
from engine.compiler.kernels.images.border import Bordered
from engine.compiler.kernels.products.product import Product
from engine.compiler.kernels.winograd import blocking as winograd
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.compiler.kernels.winograd.winograd import Winograd
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.steps import KernelStep
from engine.passes import optimise

# Of Winograd's blockings, those that its model finds so near the best are simulated.
_NEAR = 1.2
_LEAST_FLOPS = 1e5
_NAMES = ("tiles", "at_once", "vectors", "panels", "depth")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Chosen kernel, best kernel found, and the cycles of both on a core."""

    geometry: str
    chosen: str
    best: str
    cycles: float
    least: float


def tiles_of(host: Host, rows: int, columns: int, out_channels: int, *, is_signal: bool = False) -> Iterator[ConvTile]:
    """Yield every tile that fits the registers."""
    count = len(vectors_of(out_channels, host.lanes))
    for vectors in PANEL_SIZES:
        limit = host.most_rows(vectors)
        for down in range(1, 2 if is_signal else min(rows, limit) + 1) if vectors <= max(count, 1) else ():
            for across in range(1, min(columns, limit // down) + 1):
                yield ConvTile(down, across, vectors)


def judged(machine: Machine, step: KernelStep) -> Iterator[Verdict]:
    """Yield the verdicts on the kernels of a step."""
    kernel = step.kernel.inner if isinstance(step.kernel, Bordered) else step.kernel
    if isinstance(kernel, Conv) and kernel.flops > _LEAST_FLOPS:
        yield _judged_direct(machine, kernel)
    elif isinstance(kernel, Winograd):
        yield _judged_winograd(machine, kernel)
    elif isinstance(kernel, Product) and kernel.flops > _LEAST_FLOPS:
        yield _judged_product(machine, kernel)


def _judged_direct(machine: Machine, kernel: Conv) -> Verdict:
    tiles = tiles_of(machine.host, kernel.rows, kernel.columns, kernel.out_channels)
    found = {_spelled(tile): machine.direct(kernel, tile) for tile in tiles}
    cycles = machine.direct(kernel, kernel.tile)
    taps = "×".join(map(str, kernel.kernel))
    geometry = f"{kernel.rows}×{kernel.columns}, {kernel.in_channels}→{kernel.out_channels}, {taps}"
    if kernel.kernel == (3, 3) and kernel.groups == 1 and kernel.depth is None and kernel.dilation == (1, 1):
        found |= _of_winograd(machine, kernel, kernel.stride[0])
    return _verdict(machine, geometry, f"direct {_spelled(kernel.tile)}", cycles, found)


def _judged_winograd(machine: Machine, kernel: Winograd) -> Verdict:
    work = _work(machine, kernel, kernel.filtering)
    cycles = machine.winograd(work, kernel.blocking)
    found = _of_winograd(machine, kernel, kernel.filtering.stride)
    if kernel.filtering.kernel == (3, 3) and kernel.dilation == 1 and not kernel.filtering.is_row:
        plain = _direct_of(kernel)
        tiles = tiles_of(machine.host, kernel.rows, kernel.columns, kernel.out_channels)
        found |= {_spelled(tile): machine.direct(plain, tile) for tile in tiles}
    geometry = f"{kernel.rows}×{kernel.columns}, {kernel.in_channels}→{kernel.out_channels}, 3×3"
    chosen = f"Winograd {_named(kernel.filtering, kernel.blocking)}"
    return _verdict(machine, geometry, chosen, cycles, found)


def _judged_product(machine: Machine, kernel: Product) -> Verdict:
    """Return the verdict on a product: rows of its tile are columns of a convolution's."""
    found = {}
    for tile in tiles_of(machine.host, 1, kernel.rows, kernel.columns, is_signal=True):
        found[_spelled(tile)] = machine.stacked(kernel, tile.columns, tile.vectors)
    cycles = machine.stacked(kernel, kernel.tile_rows, kernel.vectors)
    geometry = f"{kernel.stack[0] * kernel.stack[1]} of {kernel.rows}×{kernel.terms}×{kernel.columns}"
    return _verdict(machine, geometry, f"{kernel.tile_rows} × {kernel.vectors}", cycles, found)


def _of_winograd(machine: Machine, kernel: Conv | Winograd, stride: int) -> dict[str, float]:
    found = {}
    offered = [Filtering(each, stride) for each in winograd.OFFERED.get(stride, ())]
    if isinstance(kernel, Winograd) and kernel.filtering.is_row:
        offered = [kernel.filtering]
    for filtering in offered:
        work = _work(machine, kernel, filtering)
        tried = [winograd.Blocking(**dict(zip(_NAMES, each, strict=True))) for each in winograd._candidates(work)]
        sizes = winograd._Blockings(*np.array([[getattr(b, name) for name in _NAMES] for b in tried]).T)
        costs = np.where(work.scratch(sizes) <= winograd.STACK_BYTES, work.cost(sizes), np.inf)
        for index in np.flatnonzero(costs <= _NEAR * costs.min()):
            b = tried[index]
            found[f"Winograd {_named(filtering, b)}"] = machine.winograd(work, b)
    return found


def _work(machine: Machine, kernel: Conv | Winograd, filtering: Filtering) -> winograd._Work:
    dilation = kernel.dilation if isinstance(kernel, Winograd) else 1
    batch, rows, columns = kernel.batch, kernel.rows, kernel.columns
    if dilation > 1:
        batch, columns = batch * dilation, -(-columns // dilation)
        if not filtering.is_row:
            batch, rows = batch * dilation, rows // dilation
    return winograd._work(machine.host, filtering, rows, columns, kernel.in_channels, kernel.out_channels, batch)


def _direct_of(kernel: Winograd) -> Conv:
    return Conv(
        host=kernel.host,
        batch=kernel.batch,
        rows=kernel.rows,
        columns=kernel.columns,
        source=kernel.source,
        target=kernel.target,
        in_channels=kernel.in_channels,
        out_channels=kernel.out_channels,
        groups=1,
        kernel=(3, 3),
        stride=(kernel.filtering.stride,) * 2,
        dilation=(1, 1),
        tile=ConvTile(1, 1, 1),
    )


def _verdict(machine: Machine, geometry: str, chosen: str, cycles: float, found: dict[str, float]) -> Verdict:
    best = min(found, key=found.__getitem__)
    if found[best] >= cycles:
        best = chosen
    each = machine.products_a_cycle
    return Verdict(geometry, chosen, best, cycles / each, min(found.get(best, cycles), cycles) / each)


def _spelled(tile: ConvTile) -> str:
    return f"{tile.rows * tile.columns} × {tile.vectors}" + (f" ({tile.rows} rows)" if tile.rows > 1 else "")


def _named(filtering: Filtering, b: winograd.Blocking) -> str:
    return f"{filtering.output_tile}: {b.tiles} tiles, {b.at_once} × {b.vectors}, {b.panels} panels, depth {b.depth}"


def lowered(folder: Path, host: Host) -> Lowering:
    """Return a network lowered for a machine."""
    graph = optimise(engine.load(folder / "model.pnnx.param", folder / "model.pnnx.bin"))[0]
    ports = ([port.operand for port in each] for each in (graph.inputs, graph.outputs))
    lowering = Lowering(graph.operators, graph.infer([port.spec for port in graph.inputs]), *ports, host)
    lower(lowering)
    return lowering
