"""Element-wise maps over every dtype: comparisons, logic, masks, integers, float64, conversions.

Elements are loaded in their own dtype, computed in one domain (float32, float64 or int64) and converted
to the dtype of the target.

Arguments: target, operands, and a fault flag (an int) where some values are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import (
    Function,
    Index,
    Value,
    constant,
    lanes_below,
    lanes_of,
    vector,
)
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.expr import Expr, Operand, emit
from engine.compiler.kernels.functions import half, math, typed
from engine.compiler.kernels.functions.comparison import Truth
from engine.compiler.kernels.functions.rounding import Code
from engine.compiler.kernels.indexing.gather import OUTSIDE
from engine.compiler.kernels.map import Map, map_loops
from engine.ir.dims import hint

Domain = Literal["float", "double", "i64"]
FUNCTIONS: Mapping[Domain, Mapping[str, Callable[..., Value]]] = {
    "float": math.FUNCTIONS,
    "double": typed.DOUBLES,
    "i64": typed.INTEGERS,
}
"""Functions of each domain."""
TYPES = {
    "bool": ("i8", 1), "uint8": ("i8", 1), "int8": ("i8", 1), "int16": ("i16", 2), "int32": ("i32", 4),
    "int64": ("i64", 8), "float32": ("float", 4), "float64": ("double", 8),
}  # fmt: skip
"""LLVM type and bytes of an element in memory."""
COMPUTED = {**TYPES, "uint16": ("i16", 2), "uint32": ("i32", 4)}
"""Also the dtypes that only maps compute with."""
STORED = {**COMPUTED, **{name: ("i16", size) for name, size in half.SIZES.items()}}
"""Also the 16-bit floats that are converted on load and store."""
_FLOATS = ("float", "double")


@dataclass(frozen=True, kw_only=True)
class Elements(Map):
    """Element-wise map of static geometry over any dtypes; see ``make_elements``.

    Args:
        dtypes: of the target and the operands.
        domain: type computed in.
        checked: conditions that raise the fault flag if they hold for any element; the result is invalid then.
    """

    dtypes: tuple[str, ...]
    domain: Domain
    checked: tuple[Expr, ...] = ()

    @property
    def element_bytes(self) -> int:
        return sum(STORED[each][1] for each in self.dtypes)

    @property
    def is_masked(self) -> bool:
        return False

    @property
    def is_copy(self) -> bool:
        """Return whether elements are stored as they were loaded."""
        return self.tree == Operand(0) and len(set(self.dtypes)) == 1 and not self.checked

    def address(self, f: Function, number: int, base: Value, offset: Index) -> Value:
        return f.at(base, offset, STORED[self.dtypes[number]][1])

    def load(self, f: Function, number: int, at: Value, index: Index, count: int) -> Value:
        dtype = self.dtypes[1 + number]
        value = self._load(f, at, index, count, self.operands[number][-1], dtype)
        return value if self.is_copy else to_domain(f, value, dtype, self.domain, self.host)

    def store(self, f: Function, at: Sequence[Value], index: Index, count: int, values: Sequence[Value]) -> None:
        dtype, type_ = self.dtypes[0], vector(self.lanes, self.domain)
        if self.is_copy:
            self._store(f, values[0], at[0], index, count, dtype)
            return
        result = emit(f, self.tree, values, type_, FUNCTIONS[self.domain])
        self._store(f, to_dtype(f, result, dtype, self.host), at[0], index, count, dtype)
        for each in self.checked:
            self._check(f, emit(f, each, values, type_, FUNCTIONS[self.domain]), count, at[-1])

    def _check(self, f: Function, value: Value, count: int, fault_flag: Value) -> None:
        """Raise the fault flag where a condition holds for any valid lane."""
        mask = f.compare("ne", value, constant(0, value.type))
        if count < self.lanes:
            mask = f.binary("and", mask, lanes_below(count, self.lanes))
        with f.when(f.any(mask)):
            f.store(constant(OUTSIDE, "i32"), fault_flag)

    def _load(self, f: Function, base: Value, index: Index, count: int, stride: int, dtype: str) -> Value:
        """Load some lanes in their own dtype; nothing beyond them is read."""
        element, size = STORED[dtype]
        if stride == 0:
            return f.splat(f.load(element, base, size), self.lanes)
        address = f.at(base, f.mul(index, stride), size)
        if self.lanes == 1 or (stride == 1 and count == self.lanes):
            return f.load(vector(self.lanes, element), address, size)
        if stride == 1 and size < 4:
            return f.load_bytes(address, self.lanes, count, size)
        type_ = vector(self.lanes, element)
        value = Value("zeroinitializer", type_)
        for lane in range(count):
            one = f.load(element, f.at(address, lane * stride, size), size)
            value = f.op(type_, f"insertelement {type_} {value.text}, {element} {one.text}, i64 {lane}")
        return value

    def _store(self, f: Function, value: Value, base: Value, index: Index, count: int, dtype: str) -> None:
        element, size = STORED[dtype]
        stride = self.target[-1]
        address = f.at(base, f.mul(index, stride), size)
        if self.lanes == 1 or (stride == 1 and count == self.lanes):
            f.store(value, address, size)
            return
        if stride == 1 and size < 4:
            f.store_bytes(value, address, count)
            return
        for lane in range(count):
            one = f.op(element, f"extractelement {value.type} {value.text}, i64 {lane}")
            f.store(one, f.at(address, lane * stride, size), size)


@dataclass(frozen=True, kw_only=True)
class CheckedElements(Elements):
    """Element-wise map that may raise the fault flag."""

    sets_fault_flag = True


def to_domain(f: Function, value: Value, dtype: str, domain: Domain, host: Host) -> Value:
    """Convert loaded values to the domain computed in."""
    type_ = vector(lanes_of(value.type), domain)
    if dtype == "bool":
        mask = f.compare("ne", value, constant(0, value.type))
        return _as_number(f, mask, type_)
    if dtype in half.SIZES:
        single = half.from_half(f, value, dtype, host)
        return f.convert("fpext", single, type_) if domain == "double" else single
    if dtype.startswith("float"):
        name = {("float32", "double"): "fpext", ("float64", "float"): "fptrunc"}.get((dtype, domain))
        return value if name is None else f.convert(name, value, type_)
    is_signed = not dtype.startswith("u")
    if domain in _FLOATS:
        return f.convert("sitofp" if is_signed else "uitofp", value, type_)
    return value if value.type == type_ else f.convert("sext" if is_signed else "zext", value, type_)


def to_dtype(f: Function, value: Value, dtype: str, host: Host) -> Value:
    """Convert computed values to the dtype of the target."""
    return half.to_half(f, value, dtype, host) if dtype in half.SIZES else _converted(f, value, dtype)


def _as_number(f: Function, mask: Value, type_: str) -> Truth:
    return typed.as_truth(f, mask, type_)


def _converted(f: Function, value: Value, dtype: str) -> Value:
    """Convert computed values to a dtype that is not a 16-bit float."""
    lanes, element = lanes_of(value.type), COMPUTED[dtype][0]
    is_float = value.type.endswith(("float", "double", "float>", "double>"))
    if dtype == "bool":
        zero = constant(0, value.type)
        is_true = f.compare("une" if is_float else "ne", value, zero)
        mask = value.mask if isinstance(value, Truth) else is_true
        return f.convert("zext", mask, vector(lanes, element))
    if vector(lanes, element) == value.type:
        return value
    if is_float and dtype.startswith("float"):
        return f.convert("fpext" if dtype == "float64" else "fptrunc", value, vector(lanes, element))
    if isinstance(value, Code) and element == "i8":
        return f.convert("trunc", value.whole, vector(lanes, element))
    if is_float:
        return _truncated(f, value, element)
    return f.convert("trunc", value, vector(lanes, element))


def _truncated(f: Function, value: Value, element: str) -> Value:
    """Truncate to an integer; out of range gives the least integer, as x86 does, and short types wrap."""
    lanes, width = lanes_of(value.type), 32 if element == "i32" else 64
    type_, limit = vector(lanes, f"i{width}"), 2.0 ** (width - 1)
    above = f.compare("oge", value, constant(-limit, value.type))
    is_inside = f.binary("and", above, f.compare("olt", value, constant(limit, value.type)))
    integer = f.convert("fptosi", f.select(is_inside, value, constant(0.0, value.type)), type_)
    integer = f.select(is_inside, integer, constant(-(2 ** (width - 1)), type_))
    return integer if element in ("i32", "i64") else f.convert("trunc", integer, vector(lanes, element))


def make_elements(
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    tree: Expr,
    domain: Domain,
    host: Host,
    checked: Sequence[Expr] = (),
) -> Elements:
    """Return the map over ``shape`` whose target and operands have these strides and dtypes.

    Args:
        checked: conditions none of which may hold; see ``Elements``.
    """
    lanes = max(1, host.lanes if domain == "float" else host.lanes // 2)
    kind = CheckedElements if checked else Elements
    made = kind(
        **map_loops(shape, strides, lanes),
        tree=tree,
        dtypes=tuple(dtypes),
        domain=domain,
        checked=tuple(checked),
        host=host,
    )
    # Whole registers of narrow elements are copied.
    size, is_contiguous = STORED[made.dtypes[0]][1], {made.target[-1], *(each[-1] for each in made.operands)} == {1}
    if made.is_copy and size < 4 and is_contiguous:
        return replace(made, lanes=fitting_lanes(hint(made.sizes[-1]), 4 * host.lanes // size))
    return made
