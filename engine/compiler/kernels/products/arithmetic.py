"""Arithmetic of products by the dtype of their factors: one row each in ``ARITHMETIC``.

Factors are words as wide as a sum: a float, or several narrower numbers. Kernels load, broadcast and pack words; only
their products and the conversion of stored weights depend on the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Value, constant, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import bits, from_bits, integer
from engine.tensor import BFLOAT16, Array, DType

Words: TypeAlias = Literal["float", "int16", "int8", "bfloat16"]
MultiplyAdd: TypeAlias = Callable[[Function, Value, Value, Value], Value]
# Speed of direct convolutions in tile registers, relative to float32; their products alone are 16 times as fast.
_TILE_SPEED: Final = 5.0
# By vector width in words: the x86 instruction that multiplies 16-bit pairs and adds the two products.
_PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
# The same for instructions of AVX-512 that also add to an accumulator.
_WIDTHS = {4: "128", 8: "256", 16: "512"}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Row of the table.

    Args:
        numbers: in a word.
        multiply_add: for a host, the function that emits sums plus the products of two vectors of words.
        tiling_host: a host as the choice of register tiles must see it for these products.
        image, weight: dtypes of the numbers in the two factors; of single numbers, the kernel's own float instead.
        sums: LLVM type of a sum; empty for the kernel's own float.
        speed: of direct convolutions, relative to float32.
        tiles: instruction of AMX for it, in LLVM; empty if there is none.
        tile_feature: LLVM's feature with that instruction.
    """

    numbers: int
    multiply_add: Callable[[Host], MultiplyAdd]
    tiling_host: Callable[[Host], Host]
    image: DType = np.dtype(np.float32)
    weight: DType = np.dtype(np.float32)
    sums: str = ""
    speed: float = 1.0
    tiles: str = ""
    tile_feature: str = ""

    def has_tiles(self, host: Host) -> bool:
        """Return whether a host multiplies these words in tile registers."""
        return bool(self.tiles) and self.tile_feature in host.features

    def speed_on(self, host: Host) -> float:
        """Return the speed of direct convolutions on a host, relative to float32."""
        return _TILE_SPEED if self.has_tiles(host) else self.speed

    def words_of(self, weight: Array) -> Array:
        """Return weights (O, I, ...) as words (O, words, ...), the last one filled with zeros."""
        if self.numbers == 1:
            return weight
        count = -(-weight.shape[1] // self.numbers)
        parts = np.zeros((len(weight), *weight.shape[2:], self.numbers * count), self.weight)
        parts[..., : weight.shape[1]] = np.moveaxis(weight, 1, -1)
        return np.ascontiguousarray(np.moveaxis(parts.view(np.float32), -1, 1))

    def first_sums(self, bias: Array) -> Array:
        """Return a bias as the words that sums begin with."""
        return bias.astype(np.int32).view(np.float32) if self.sums else bias

    def begun(self, f: Function, words: Value) -> Value:
        """Return words as sums."""
        return f.convert("bitcast", words, vector(lanes_of(words.type), self.sums)) if self.sums else words

    def ended(self, f: Function, sums: Value) -> Value:
        """Return sums as words."""
        return f.convert("bitcast", sums, vector(lanes_of(sums.type))) if self.sums else sums


def joined(f: Function, numbers: Sequence[Value], size: int) -> Value:
    """Return the words of narrow integers of ``size`` bytes, the first in the lowest bits; missing ones are 0."""
    lanes = lanes_of(numbers[0].type)
    wide = [f.convert("zext", each, vector(lanes, "i32")) for each in numbers]
    word = wide[0]
    for k, each in enumerate(wide[1:], 1):
        word = f.binary("or", word, integer(f, "shl", each, 8 * size * k))
    return from_bits(f, word)


def _tiling_pairs(host: Host) -> Host:
    return host if host.has_vnni else replace(host, broadcasts_from_memory=False)


def _tiling_bfloat16(host: Host) -> Host:
    # LLVM broadcasts words to registers, and Zen 4 does so at the rate of products: one vector a panel is 15 % slower.
    return replace(host, broadcasts_from_memory=False, repeats_a_product=1)


def _pairs(host: Host) -> MultiplyAdd:
    if host.has_vnni:
        return _instruction("avx512.vpdpwssd", _add_pairs)
    return _multiply_pairs if host.multiplies_pairs else _add_pairs


def _instruction(name: str, otherwise: MultiplyAdd, numbers: int = 1, dtype: str = "i32") -> MultiplyAdd:
    """Return the function that emits an instruction for whole vectors and single words, and does otherwise for pairs.

    Args:
        name: of the instruction in LLVM, without the width.
        otherwise: emits the same for any words.
        numbers, dtype: of a word, as the instruction takes its factors.
    """

    def multiply_add(f: Function, a: Value, b: Value, total: Value) -> Value:
        lanes = lanes_of(total.type)
        if lanes == 1:
            first = [_first_of(f, each) for each in (a, b, total)]
            wide = multiply_add(f, *first)
            return f.op(total.type, f"extractelement {wide.type} {wide.text}, i64 0")
        if lanes not in _WIDTHS:
            return otherwise(f, a, b, total)
        words = [total, *(f.convert("bitcast", each, vector(numbers * lanes, dtype)) for each in (a, b))]
        return f.call(f"llvm.x86.{name}.{_WIDTHS[lanes]}", words, total.type)

    return multiply_add


def _first_of(f: Function, word: Value) -> Value:
    """Return the narrowest vector that begins with a word; it lies in such a register already."""
    type_ = vector(min(_WIDTHS), word.type)
    return f.op(type_, f"insertelement {type_} poison, {word.type} {word.text}, i64 0")


def _multiply_pairs(f: Function, a: Value, b: Value, total: Value) -> Value:
    lanes = lanes_of(total.type)
    if lanes not in _PAIRS:
        return _add_pairs(f, a, b, total)
    halves = [f.convert("bitcast", each, vector(2 * lanes, "i16")) for each in (a, b)]
    return f.binary("add", total, f.call(f"llvm.x86.{_PAIRS[lanes]}", halves, total.type))


def _bytes(host: Host) -> MultiplyAdd:
    if host.has_vnni:
        return _instruction("avx512.vpdpbusd", _add_bytes)
    return _multiply_bytes if host.multiplies_pairs else _add_bytes


def _multiply_bytes(f: Function, a: Value, b: Value, total: Value) -> Value:
    """Emit the sum by products of pairs of 16 bits: first of even bytes, then of odd ones."""
    lanes = lanes_of(total.type)
    if lanes not in _PAIRS:
        return _add_bytes(f, a, b, total)
    left, right = (f.convert("bitcast", each, vector(2 * lanes, "i16")) for each in (a, b))
    even = integer(f, "and", left, 255), integer(f, "ashr", integer(f, "shl", right, 8), 8)
    odd = integer(f, "lshr", left, 8), integer(f, "ashr", right, 8)
    for pairs in (even, odd):
        total = f.binary("add", total, f.call(f"llvm.x86.{_PAIRS[lanes]}", pairs, total.type))
    return total


def _add_pairs(f: Function, a: Value, b: Value, total: Value) -> Value:
    """Emit the sum by shifts and products, which every processor has."""
    return _add_parts(f, a, b, total, 16, "ashr")


def _add_bytes(f: Function, a: Value, b: Value, total: Value) -> Value:
    return _add_parts(f, a, b, total, 8, "lshr")


def _add_parts(f: Function, a: Value, b: Value, total: Value, bits: int, shift: str) -> Value:
    """Emit the sum of products of parts of words, sign-extended; those of ``a`` by ``shift``."""
    words = [f.convert("bitcast", each, total.type) for each in (a, b)]
    for high in range(32 - bits, -1, -bits):
        left, right = (
            f.binary(how, f.binary("shl", each, constant(high, each.type)), constant(32 - bits, each.type))
            for each, how in zip(words, (shift, "ashr"), strict=True)
        )
        total = f.binary("add", total, f.binary("mul", left, right))
    return total


def _halves(host: Host) -> MultiplyAdd:
    return _instruction("avx512bf16.dpbf16ps", _add_halves, 2, "bfloat") if host.has_bfloat16 else _add_halves


def _add_halves(f: Function, a: Value, b: Value, total: Value) -> Value:
    for half in (_high, _low):
        total = f.fma(half(f, a), half(f, b), total)
    return total


def _high(f: Function, words: Value) -> Value:
    return from_bits(f, integer(f, "and", bits(f, words), -1 << 16))


def _low(f: Function, words: Value) -> Value:
    return from_bits(f, integer(f, "shl", bits(f, words), 16))


ARITHMETIC: Final[Mapping[Words, Arithmetic]] = {
    "float": Arithmetic(1, lambda host: Function.fma, lambda host: host),
    "int16": Arithmetic(2, _pairs, _tiling_pairs, np.dtype(np.int16), np.dtype(np.int16), "i32"),
    "int8": Arithmetic(
        4,
        _bytes,
        _tiling_pairs,
        np.dtype(np.uint8),
        np.dtype(np.int8),
        "i32",
        tiles="tdpbusd",
        tile_feature="+amx-int8",
    ),
    # The instruction of AVX512-BF16 takes subnormal numbers as 0.
    "bfloat16": Arithmetic(
        2,
        _halves,
        _tiling_bfloat16,
        BFLOAT16,
        BFLOAT16,
        speed=1.8,
        tiles="tdpbf16ps",
        tile_feature="+amx-bf16",
    ),
}
