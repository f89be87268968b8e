"""Direct convolution in tile registers (AMX): one instruction multiplies rows of pixels by a panel of channels.

A tile register is up to 16 rows of 64 bytes. A register tile of ``conv`` is one or two segments of pixels by one or two
vectors of channels. Its sums lie in four tiles; each step of the K loop loads the next words of the segments' pixels
and as many rows of packed weights. Both lie in memory as other processors read them. Sums go to the stack, where the
epilogue reads them.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import product
from typing import Final

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant
from engine.compiler.kernels.channels import Panel, panels_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.conv_tile import TileWriter, emit_tile
from engine.compiler.kernels.convolution.tiles import ConvTile, expected_sizes
from engine.compiler.kernels.products.arithmetic import ARITHMETIC
from engine.compiler.kernels.target import Target
from engine.compiler.kernels.windows import is_clipped

# Rows of a tile register, and words of a row.
SIZE: Final = 16
# Segments and vectors of a register tile; numbers of the first tile registers of segments and of weights.
_MOST: Final = 2
_SEGMENTS, _WEIGHTS = 4, 6
_REGISTERS: Final = 8
_PALETTE: Final = 1
# Least share of a tile's products that are used. All of them take an eighth of the time of vector instructions.
_LEAST_USED: Final = 1 / 4


def in_tiles(conv: Conv) -> Conv:
    """Return the kernel that computes the same in tile registers; the given one where that is not faster."""
    if not ARITHMETIC[conv.words].has_tiles(conv.host) or conv.host.lanes != SIZE or is_clipped(conv.depth):
        return conv
    made = MatrixConv(**{each.name: getattr(conv, each.name) for each in fields(conv) if each.init})
    made = replace(made, tile=_tile(expected_sizes(conv.rows).start, expected_sizes(conv.columns).start, made))
    channels = made.out_channels / (SIZE * len(panels_of(made.out_channels, SIZE, 1)))
    is_used = made.segment * made.words_a_step * channels >= _LEAST_USED * SIZE * SIZE
    return made if is_used else conv


def _tile(rows: int, columns: int, conv: Conv) -> ConvTile:
    """Return the register tile for images of at least this size."""
    vectors = min(_MOST, len(panels_of(conv.out_channels, SIZE, 1)))
    if columns <= SIZE:
        return ConvTile(min(_MOST, rows), columns, vectors)
    pairs = -(-columns // (_MOST * SIZE))
    segment = columns // _MOST if pairs == 1 else -(-columns // (_MOST * pairs))
    return ConvTile(1, _MOST * segment, vectors)


@dataclass(frozen=True, kw_only=True)
class MatrixConv(Conv):
    """Convolution of static geometry in tile registers."""

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors of every panel of a group, all of them as wide as a tile."""
        return tuple(
            tuple((SIZE, real) for _, real in panel) for panel in panels_of(self.out_channels, SIZE, self.tile.vectors)
        )

    @property
    def segment(self) -> int:
        """Return the pixels of a segment."""
        return self.tile.columns if self.tile.columns <= SIZE else self.tile.columns // _MOST

    @property
    def words_a_step(self) -> int:
        """Return the words of a pixel that a step of the K loop multiplies."""
        run = self.in_channels * self.taps_in_run
        return max(each for each in range(1, SIZE + 1) if run % each == 0)

    @property
    def fetching(self) -> int:
        return 0

    def begin(self, f: Function) -> None:
        sizes = dict.fromkeys(range(_SEGMENTS), (self.segment, SIZE))
        sizes |= dict.fromkeys(range(_SEGMENTS, _WEIGHTS), (self.segment, self.words_a_step))
        sizes |= dict.fromkeys(range(_WEIGHTS, _REGISTERS), (self.words_a_step, SIZE))
        content = configuration([sizes[number] for number in range(_REGISTERS)])
        at = f.reserve(len(content) // 4)
        for k in range(0, len(content), 4):
            f.store(constant(int.from_bytes(content[k : k + 4], "little"), "i32"), f.at(at, k // 4))
        f.call("llvm.x86.ldtilecfg", [at])

    def end(self, f: Function) -> None:
        f.call("llvm.x86.tilerelease", [])

    def write_tile(self, module: Module, panel: Panel) -> str:
        writer = partial(_Writer, segment=self.segment, step=self.words_a_step)
        return emit_tile(module, self.tile_of(panel), writer)


def configuration(sizes: Sequence[tuple[int, int]]) -> bytes:
    """Return the operand of ``ldtilecfg`` for tile registers of these rows and words a row."""
    content = bytearray(64)
    content[0] = _PALETTE
    for number, (rows, words) in enumerate(sizes):
        content[16 + 2 * number], content[48 + number] = 4 * words, rows
    return bytes(content)


@dataclass(frozen=True, slots=True)
class _Writer(TileWriter):
    """Emitter of a register tile's body.

    Args:
        segment: pixels of a segment.
        step: words of a step of the K loop.
    """

    segment: int
    step: int

    def emit(self) -> None:
        f, code = self.f, self.code
        image, weights, *addresses = f.parameters
        target = Target.of(f, code.epilogue, code.target, addresses)
        sums = f.reserve(code.rows * code.columns * code.width)
        for number, (_, first) in self._sums:
            _tile_call(f, "tileloadd64", number, f.at(weights, first), 0)
        self._walk(list(code.loops), image, f.at(weights, code.width * (1 + code.skipped)))
        for number, (pixel, first) in self._sums:
            _tile_call(f, "tilestored64", number, f.at(sums, pixel * code.width + first), 4 * code.width)
        self.apply_epilogue(sums, target)

    @property
    def _segments(self) -> list[tuple[int, int]]:
        """Return row and first column of every segment."""
        return [*product(range(self.code.rows), range(0, self.code.columns, self.segment))]

    @property
    def _sums(self) -> list[tuple[int, tuple[int, int]]]:
        """Return the tile registers of sums, each with its first pixel and channel."""
        pixels = [row * self.code.columns + column for row, column in self._segments]
        return [*enumerate(product(pixels, self.code.starts))]

    def _walk(self, loops: list[tuple[int, Index, int]], image: Value, weights: Value) -> None:
        """Emit the loops over taps, the K loop innermost."""
        f, code = self.f, self.code
        if not loops:
            with f.loop(0, code.run, self.step) as loop:
                self._multiply_tiles(f.at(image, loop.index), f.at(weights, f.mul(loop.index, code.width)))
            return
        (count, distance, values), *inner = loops
        with f.loop(0, count) as loop:
            at = f.at(image, f.mul(loop.index, distance))
            self._walk(inner, at, f.at(weights, f.mul(loop.index, values * code.width)))

    def _multiply_tiles(self, image: Value, weights: Value) -> None:
        f, code = self.f, self.code
        for number, first in enumerate(code.starts):
            _tile_call(f, "tileloadd64", _WEIGHTS + number, f.at(weights, first), 4 * code.width)
        for number, (row, column) in enumerate(self._segments):
            at = f.at(f.at(image, f.mul(row, code.steps[0])), f.mul(column, code.steps[1]))
            _tile_call(f, "tileloadd64", _SEGMENTS + number, at, f.mul(4, code.steps[1]))
        pairs = product(range(len(self._segments)), range(len(code.panel)))
        for number, (segment, channels) in enumerate(pairs):
            numbers = (number, _SEGMENTS + segment, _WEIGHTS + channels)
            f.call(f"llvm.x86.{code.arithmetic.tiles}", [Value(str(each), "i8") for each in numbers])


def _tile_call(f: Function, name: str, number: int, address: Value, stride: Index) -> None:
    """Emit a load or store of a tile register whose rows lie ``stride`` bytes apart."""
    f.call(f"llvm.x86.{name}", [Value(str(number), "i8"), address, as_value(stride)])
