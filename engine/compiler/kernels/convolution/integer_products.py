"""Dot products of small integers: two of 16 bits or four of 8 in each 32-bit word.

Words are loaded, broadcast and packed like floats; only the products differ.
"""

from __future__ import annotations

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Value, constant, lanes_of, vector

# By vector width in words: the x86 instruction that multiplies pairs and adds their products.
_X86 = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
# The same for AVX-512 VNNI, which also adds to an accumulator.
_VNNI = {4: "128", 8: "256", 16: "512"}
VNNI = "dots"


def dot_method(host: Host) -> str:
    """Return how a host multiplies and adds pairs: VNNI, multiply then add, or (empty) by shifts and products."""
    if host.triple.startswith("x86_64"):
        return VNNI if host.has_vnni else "x86"
    return ""


def as_integers(f: Function, words: Value) -> Value:
    """Reinterpret words as 32-bit integers."""
    return f.convert("bitcast", words, vector(lanes_of(words.type), "i32"))


def as_floats(f: Function, sums: Value) -> Value:
    """Convert 32-bit integers to floats."""
    return f.convert("sitofp", sums, vector(lanes_of(sums.type)))


def add_pairs(f: Function, a: Value, b: Value, total: Value, how: str) -> Value:
    """Emit ``total`` plus the two products of the 16-bit halves of each word.

    Args:
        how: as returned by ``dot_method``.
    """
    lanes = lanes_of(a.type)
    if how == VNNI and lanes in _VNNI:
        words = [total, as_integers(f, a), as_integers(f, b)]
        return f.call(f"llvm.x86.avx512.vpdpwssd.{_VNNI[lanes]}", words, total.type)
    name = _X86.get(lanes) if how else None
    if name is None:
        a, b = as_integers(f, a), as_integers(f, b)
        low, high = (f.binary("mul", half(f, a), half(f, b)) for half in (_low, _high))
        return f.binary("add", total, f.binary("add", low, high))
    type_ = vector(2 * lanes, "i16")
    halves = [f.convert("bitcast", each, type_) for each in (a, b)]
    return f.binary("add", total, f.call(f"llvm.x86.{name}", halves, total.type))


def add_bytes(f: Function, a: Value, b: Value, total: Value) -> Value:
    """Emit ``total`` plus the four products of the bytes of each word, unsigned in ``a``; for hosts with VNNI."""
    lanes = lanes_of(a.type)
    if lanes in _VNNI:
        words = [total, as_integers(f, a), as_integers(f, b)]
        return f.call(f"llvm.x86.avx512.vpdpbusd.{_VNNI[lanes]}", words, total.type)
    first, second = as_integers(f, a), as_integers(f, b)
    for position in range(4):
        total = f.binary(
            "add", total, f.binary("mul", _byte(f, first, position, "lshr"), _byte(f, second, position, "ashr"))
        )
    return total


def _byte(f: Function, words: Value, position: int, shift: str) -> Value:
    """Emit a byte of each word, zero- or sign-extended."""
    highest = f.binary("shl", words, constant(24 - 8 * position, words.type))
    return f.binary(shift, highest, constant(24, words.type))


def _low(f: Function, words: Value) -> Value:
    return f.binary("ashr", f.binary("shl", words, constant(16, words.type)), constant(16, words.type))


def _high(f: Function, words: Value) -> Value:
    return f.binary("ashr", words, constant(16, words.type))
