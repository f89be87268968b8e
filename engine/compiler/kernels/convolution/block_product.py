"""Products of rows with stored weights of a few bits, in blocks with a scale and perhaps a zero point each.

The register tile and its loops are those of ``conv``. Words of a panel hold several codes of each output channel. Each
code becomes a float in a register, minus its zero point, and all rows of the tile are multiplied by it. With few rows,
memory limits the speed: the sum of a block is multiplied by the scale, which saves a product a weight. With more rows
every weight is multiplied by its scale, and a result is the sum of the same products as in ``conv``.

Arguments: rows, packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Final, Self

import numpy as np

from engine.compiler.codegen.ir import Module, Value, constant, hint, lanes_of, vector
from engine.compiler.kernels.channels import Panel, load_panel
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.conv_tile import TileWriter, emit_tile
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.folding import total
from engine.compiler.kernels.functions.arithmetic import from_bits, integer
from engine.tensor import Array

# Bits of a word, which is as large as a float; of a float's fraction; and its exponent's offset.
_WORD: Final = 32
_FRACTION: Final = 23
_BIAS: Final = 127
# Lanes of a vector that tables of 16-bit numbers are read for, and bits of their codes.
_TABLE_LANES: Final = 16
_TABLE_BITS: Final = 4
# Rows up to which memory limits the speed, and sums of a block so that products do not wait for each other.
_FEW_ROWS: Final = 2
_SUMS: Final = 8
# Vectors of a panel, the first of equally fast ones.
_PANEL_SIZES: Final = (4, 2, 3, 1)
# With fewer registers, a panel of one vector leaves more of them to rows, which share the floats made of its codes.
_MANY_REGISTERS: Final = 32
# One of so many registers holds words, scales or constants.
_OTHERS: Final = 5


@dataclass(frozen=True, kw_only=True)
class BlockProduct(Conv):
    """Product of static geometry: a convolution of kernel 1x1 without groups.

    Args:
        bits: of a code.
        block: input channels of a block.
        has_zeros: whether blocks have zero points; otherwise they are half of the codes.
    """

    kind = "block_product"
    bits: int
    block: int
    has_zeros: bool

    @classmethod
    def of(cls, plain: Conv, bits: int, block: int, *, has_zeros: bool) -> Self:
        """Return the product that a direct kernel computes from floats."""
        common = {each.name: getattr(plain, each.name) for each in fields(plain) if each.init}
        registers = plain.host.registers
        is_wide = registers >= _MANY_REGISTERS or hint(plain.columns) <= _FEW_ROWS
        host = replace(plain.host, registers=registers - registers // _OTHERS)
        sizes = _PANEL_SIZES if is_wide else _PANEL_SIZES[-1:]
        common["tile"] = choose_tile(host, plain.rows, plain.columns, plain.out_channels, plain.taps, sizes)
        return cls(**common, bits=bits, block=block, has_zeros=has_zeros)

    @property
    def numbers(self) -> int:
        """Return the codes in a word."""
        return _WORD // self.bits

    @property
    def packed_taps(self) -> int:
        blocks, words = -(-self.in_channels // self.block), -(-self.in_channels // self.numbers)
        return blocks * (1 + self.has_zeros) + words

    @property
    def packing(self) -> object:
        return self.kind, self.panels, self.in_channels, self.bits, self.block, self.has_zeros

    @property
    def streams(self) -> int:
        return 1

    @property
    def fetching(self) -> int:
        return 0

    def lines(self, weight: Array, scales: Array, zeros: Array | None) -> Array:
        """Return stored codes (O, blocks, bytes) with scales and zero points (O, blocks), as filters to ``pack``.

        The taps of an output channel are, for every block, its scale, its zero point, and its words.
        """
        words = np.ascontiguousarray(weight).view("<u4").view(np.float32)
        heads = [each.astype(np.float32)[..., None] for each in (scales, zeros) if each is not None]
        lines = np.concatenate([*heads, words], -1).reshape(len(weight), -1)
        return lines[:, : self.packed_taps, None, None]

    def write_tile(self, module: Module, panel: Panel) -> str:
        return emit_tile(module, self.tile_of(panel), partial(_Writer, product=self))


def is_in_words(bits: int, block: int) -> bool:
    """Return whether blocks of so many codes begin with a word."""
    return block * bits % _WORD == 0


@dataclass(frozen=True, slots=True)
class _Writer(TileWriter):
    """Emitter of a tile.

    Args:
        product: kernel that the tile belongs to.
    """

    product: BlockProduct

    @property
    def _sums_blocks(self) -> bool:
        """Return whether sums of blocks are multiplied by scales, instead of weights."""
        return self.code.rows * self.code.columns <= _FEW_ROWS

    def _run(self, image: Value, weights: Value, ahead: Value | None, totals: list[Value]) -> list[Value]:
        f, product = self.f, self.product
        whole, rest = divmod(product.in_channels, product.block)
        lines = 1 + product.has_zeros + product.block // product.numbers
        if whole:
            with f.loop(0, whole, carry=totals) as loop:
                at = f.at(image, f.mul(loop.index, product.block))
                line = f.at(weights, f.mul(loop.index, lines * self.code.width))
                loop.carry(self._block(at, line, product.block, loop.carried))
            totals = loop.results
        if rest:
            at, line = f.at(image, whole * product.block), f.at(weights, whole * lines * self.code.width)
            totals = self._block(at, line, rest, totals)
        return totals

    def _block(self, image: Value, line: Value, count: int, totals: list[Value]) -> list[Value]:
        """Add the products of the ``count`` input values of a block."""
        f, code, product = self.f, self.code, self.product
        heads = [
            load_panel(f, f.at(line, number * code.width), code.panel, is_padded=True)
            for number in range(1 + product.has_zeros)
        ]
        line, scales = f.at(line, len(heads) * code.width), heads[0]
        factors, zeros = None if self._sums_blocks else scales, heads[1] if product.has_zeros else None
        before = totals
        if factors is None:
            chains = max(1, _SUMS // len(totals))
            totals = [constant(0.0, each.type) for each in totals] * chains
        whole, rest = divmod(count, product.numbers)
        if whole:
            with f.loop(0, whole, carry=totals) as loop:
                at = f.at(image, f.mul(loop.index, product.numbers))
                words = f.at(line, f.mul(loop.index, code.width))
                loop.carry(self._word(at, words, product.numbers, factors, zeros, loop.carried))
            totals = loop.results
        if rest:
            at, words = f.at(image, whole * product.numbers), f.at(line, whole * code.width)
            totals = self._word(at, words, rest, factors, zeros, totals)
        if factors is not None:
            return totals
        sums = [total(f, totals[k :: len(before)]) for k in range(len(before))]
        return [
            f.fma(each, scale, first)
            for pixel, firsts in zip(self._pixels(sums), self._pixels(before), strict=True)
            for each, scale, first in zip(pixel, scales, firsts, strict=True)
        ]

    def _word(
        self,
        image: Value,
        line: Value,
        count: int,
        factors: Sequence[Value] | None,
        zeros: Sequence[Value] | None,
        totals: Sequence[Value],
    ) -> list[Value]:
        """Add the products of the first ``count`` codes of every word of a line to the sums, of each in turn."""
        f, code = self.f, self.code
        words = load_panel(f, line, code.panel, is_padded=True)
        # Zen 5 reads 4-bit words 4 % faster so far ahead than at the distance of 8-bit words, and those 8 % slower.
        ahead = code.memory.ahead_bytes * self.product.numbers // 2
        for first in range(0, code.width, code.memory.line_floats):
            f.prefetch(f.at(line, first + ahead // 4))
        size, result = code.rows * code.columns * len(code.panel), list(totals)
        for number, (k, weights) in enumerate(self._numbers(words, count)):
            if zeros is not None:
                weights = [f.fsub(each, zero) for each, zero in zip(weights, zeros, strict=True)]
            if factors is not None:
                weights = [f.fmul(each, factor) for each, factor in zip(weights, factors, strict=True)]
            begin = number * size % len(result)
            for (row, column), first in zip(self._positions, range(begin, begin + size, len(weights)), strict=True):
                value = f.load("float", f.at(f.at(f.at(image, k), row * code.steps[0]), column * code.steps[1]))
                for place, each in enumerate(weights, first):
                    result[place] = f.fma(f.splat(value, lanes_of(each.type)), each, result[place])
        return result

    def _numbers(self, words: Sequence[Value], count: int) -> Iterator[tuple[int, list[Value]]]:
        """Yield the first ``count`` codes of every word as floats, with their index; minus half without zero points."""
        product = self.product
        if product.bits == _TABLE_BITS and product.host.has_word_tables:
            pairs = product.numbers // 2
            for low in range(min(pairs, count)):
                found = [self._pair(word, low) for word in words]
                yield low, [each for each, _ in found]
                if low + pairs < count:
                    yield low + pairs, [each for _, each in found]
            return
        for k in range(count):
            yield k, [self._number(word, k) for word in words]

    def _pair(self, words: Value, index: int) -> tuple[Value, Value]:
        """Return codes ``index`` and ``index + 4`` of every word as floats.

        A table of the upper halves of floats is read for both halves of a word. It ignores the fifth bit of an index.
        """
        f, lanes, middle = self.f, lanes_of(words.type), self._middle
        if lanes != _TABLE_LANES:
            return self._number(words, index), self._number(words, index + self.product.numbers // 2)
        halves = np.array([k % 16 - middle for k in range(2 * lanes)], np.float32).view(np.uint32) >> 16
        table = Value("<" + ", ".join(f"i16 {each}" for each in halves) + ">", vector(2 * lanes, "i16"))
        given = f.convert("bitcast", words, vector(lanes, "i32"))
        if index:
            given = integer(f, "lshr", given, _TABLE_BITS * index)
        places = f.convert("bitcast", given, table.type)
        found = f.call("llvm.x86.avx512.permvar.hi.512", [table, places], table.type)
        pair = f.convert("bitcast", found, given.type)
        return from_bits(f, integer(f, "shl", pair, 16)), from_bits(f, integer(f, "and", pair, -1 << 16))

    @property
    def _middle(self) -> int:
        """Return the zero point of codes whose blocks have none, else 0."""
        return 0 if self.product.has_zeros else 1 << (self.product.bits - 1)

    def _number(self, words: Value, index: int) -> Value:
        """Return one code of every word as a float.

        Its bits become the lowest of a float's integer part, which needs no shift if they lie in the fraction.
        """
        f, bits = self.f, self.product.bits
        direct = _FRACTION // bits
        place = index % direct * bits
        power = _FRACTION - place
        given = f.convert("bitcast", words, vector(lanes_of(words.type), "i32"))
        if index >= direct:
            given = integer(f, "lshr", given, index // direct * direct * bits)
        masked = integer(f, "and", given, ((1 << bits) - 1) << place)
        value = from_bits(f, integer(f, "or", masked, (_BIAS + power) << _FRACTION))
        return f.fsub(value, constant(float((1 << power) + self._middle), words.type))
