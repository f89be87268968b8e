"""Inner functions of a Winograd convolution: transform pixels, multiply, transform sums back.

They exchange two arrays in the chunk's own memory: transformed pixels (positions, tiles, channels) and their products
with the weights, the sums (positions, tiles, output channels). ``Scratch`` is their layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray

from engine.compiler.codegen.ir import Index, Module, Value, constant, vector
from engine.compiler.kernels.channels import vectors_of
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.target import Target
from engine.compiler.kernels.winograd.transforms import Filtering

Floats = TypeVar("Floats", int, NDArray[Any])
"""A float, or a vector of floats."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Layout of a chunk's memory.

    Args:
        filtering: determines the positions of a transformed tile.
        pitch, sum_pitch: floats from tile to tile in transformed pixels and in sums.
        step, sum_step: floats from position to position; at least all tiles of a chunk.
    """

    filtering: Filtering
    pitch: int
    sum_pitch: int
    step: int
    sum_step: int


def spread(floats: Floats, line_floats: int) -> Floats:
    """Return the least sufficient odd multiple of a cache line: neighbours then map to different cache sets."""
    return line_floats * (-(-floats // line_floats) | 1)


def emit_input(
    module: Module, name: str, scratch: Scratch, source: Strides, extent: tuple[int, int], channels: int, lanes: int
) -> str:
    """Emit the transform of the pixels of one tile, for ``count`` channels; pixels beyond ``extent`` are zero, unread.

    It also prefetches the pixels of the next tile.
    """
    parameters = [("ptr", "image"), ("ptr", "following"), ("ptr", "transformed"), ("i64", "count")]
    f = module.inner(name, parameters)
    image, following, transformed, count = f.parameters
    filtering, reach = scratch.filtering, scratch.filtering.reach
    down, across = filtering.lines

    def transform(channel: Index, lanes: int, real: int) -> None:
        origin, prefetched, target = (f.at(each, channel) for each in (image, following, transformed))
        type_ = vector(lanes)
        columns = []
        for j in range(reach[1]):
            pixels = [constant(0.0, type_)] * reach[0]
            for i in range(min(reach[0], extent[0]) if j < extent[1] else 0):
                line, along = source.offset(0, i, 0), source.offset(0, 0, j)
                pixels[i] = f.load_lanes(type_, f.at(f.at(origin, line), along), real)
                f.prefetch(f.at(f.at(prefetched, line), along))
            columns.append(down.transform_pixels(f, pixels))
        for i in range(down.size):
            row = across.transform_pixels(f, [column[i] for column in columns])
            for j, value in enumerate(row):
                f.store(value, f.at(target, filtering.storage_order[i, j] * scratch.step))

    *whole, last = vectors_of(channels, lanes)
    if last == (lanes, lanes):
        with f.loop(0, count, lanes) as each:
            transform(each.index, *last)
    elif not whole:
        transform(0, *last)
    else:
        full = f.mul(f.divmod(count, lanes)[0], lanes)
        with f.loop(0, full, lanes) as each:
            transform(each.index, lanes, lanes)
        with f.when(f.less(full, count)):
            transform(full, *last)
    f.finish()
    return name


def emit_product(
    module: Module,
    name: str,
    scratch: Scratch,
    panel: Sequence[int],
    at_once: int,
    *,
    unroll: int,
    ahead: int,
    adds: bool,
) -> str:
    """Emit ``at_once`` tiles times a panel over ``count`` channels; the sums are set, or added to if ``adds``.

    It also prefetches the weights ``ahead`` floats further on, unless that is 0.
    """
    parameters = [("ptr", "pixels"), ("ptr", "weights"), ("ptr", "sums"), ("i64", "count")]
    f = module.inner(name, parameters)
    pixels, weights, sums, count = f.parameters
    starts, width = [sum(panel[:k]) for k in range(len(panel))], sum(panel)
    addresses = [f.at(sums, tile * scratch.sum_pitch + start) for tile in range(at_once) for start in starts]
    types = [vector(lanes) for lanes in panel] * at_once
    if adds:
        totals = [f.load(type_, address) for type_, address in zip(types, addresses, strict=True)]
    else:
        totals = [constant(0.0, type_) for type_ in types]
    with f.loop(0, count, unroll, carry=totals) as loop:
        totals, column, weight = loop.carried, f.at(pixels, loop.index), f.at(weights, f.mul(loop.index, width))
        for k in range(unroll):
            rows = [
                f.load(vector(lanes), f.at(weight, k * width + start))
                for lanes, start in zip(panel, starts, strict=True)
            ]
            for start in starts if ahead else ():
                f.prefetch(f.at(weight, k * width + start + ahead), 2)
            before, totals = totals, []
            for tile in range(at_once):
                value = f.load("float", f.at(column, tile * scratch.pitch + k))
                for lanes, row in zip(panel, rows, strict=True):
                    totals.append(f.fma(f.splat(value, lanes), row, before[len(totals)]))
        loop.carry(totals)
    for total, address in zip(loop.results, addresses, strict=True):
        f.store(total, address)
    f.finish()
    return name


def emit_output(
    module: Module,
    name: str,
    scratch: Scratch,
    strides: Strides,
    extent: tuple[int, int],
    overlap: tuple[int | None, int | None],
    epilogue: Epilogue,
    lanes: int,
    real: int,
) -> str:
    """Emit the transform of one tile's sums to pixels, bias and epilogue, for one vector of output channels.

    Only ``extent`` rows and columns of the tile are pixels of the image. Of those, rows above ``top`` and columns left
    of ``left`` are not stored; each is 0, or as ``overlap`` says, or any number if that is None. A non-finite pixel
    raises the fault flag.
    """
    parameters = [("i64", "top"), ("i64", "left"), ("ptr", "fault_flag")]
    parameters += [("ptr", "sums"), ("ptr", "bias"), *epilogue.parameters]
    f = module.inner(name, parameters)
    top, left, fault_flag, sums, bias, *addresses = f.parameters
    target = Target.of(f, epilogue, strides, addresses)
    type_, filtering = vector(lanes), scratch.filtering
    down, across = filtering.lines
    offset = f.load(type_, bias)
    columns = []
    for j in range(across.size):
        positions = [filtering.storage_order[i, j] for i in range(down.size)]
        values = [f.load(type_, f.at(sums, position * scratch.sum_step)) for position in positions]
        columns.append(down.transform_sums(f, values))

    zero = constant(0.0, type_)
    shared = [tile - 1 if each is None else each for tile, each in zip(filtering.tile, overlap, strict=True)]
    doubt = zero  # stays 0 while everything is finite, otherwise becomes NaN
    for h in range(min(down.output_tile, extent[0])):
        row = across.transform_sums(f, [column[h] for column in columns])[: min(across.output_tile, extent[1])]
        for value in row:
            doubt = f.fma(value, zero, doubt)
        with f.unless(f.less(h, top)) if h < shared[0] else nullcontext():
            for w in range(shared[1], len(row)):
                target.store(f.fadd(row[w], offset), real, h, w)
            with f.unless(f.less(0, left)) if shared[1] else nullcontext():
                for w in range(min(shared[1], len(row))):
                    target.store(f.fadd(row[w], offset), real, h, w)
            if overlap[1] is None:
                with f.when(f.less(0, left)):
                    for w in range(1, min(shared[1], len(row))):
                        with f.unless(f.less(w, left)):
                            target.store(f.fadd(row[w], offset), real, h, w)
    with f.when(f.any(f.compare("uno", doubt, doubt))):
        f.store(Value("1", "i32"), fault_flag)
    f.finish()
    return name
