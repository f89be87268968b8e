"""Contract of a kernel: a function of (arguments, chunk) that any thread may call for any chunk, in any order.

``arguments`` is a table of pointers in the order the kernel documents. ``chunk`` numbers units of work that write
disjoint parts of the output (or the same values). Sizes and strides are constants of the code, and layers of equal
geometry share one function, found by its name. Some sizes may be dynamic: the code reads them from a table at run time
and serves many shapes.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Precision, Sizes, Value, is_dynamic, written_in
from engine.compiler.kernels.expr import Expr, Operand
from engine.compiler.kernels.numbers import FLOAT, size_of
from engine.compiler.kernels.windows import WindowAxis
from engine.ir.dims import Dim, is_symbolic, largest, smallest
from engine.ir.ratios import Ratio
from engine.tensor import Array

K = TypeVar("K", bound="Kernel")


@dataclass(frozen=True, slots=True)
class Strides:
    """Strides of a tensor seen as (n, h, w, c), in elements."""

    n: int
    h: int
    w: int
    c: int = 1

    def dynamic(self, sizes: Sizes) -> Strides:
        """Return dynamic strides: n and h always, w and c only where they are symbolic."""
        return Strides(
            sizes.dynamic(self.n),
            sizes.dynamic(self.h),
            dynamic_if_symbolic(self.w, sizes),
            dynamic_if_symbolic(self.c, sizes),
        )

    def offset(self, n: int, h: int, w: int, c: int = 0) -> int:
        """Return the distance of an element from the first."""
        return n * self.n + h * self.h + w * self.w + c * self.c


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Element-wise expression applied to a result before it is stored.

    Args:
        tree: operand 0 is the result, operand k the element of ``operands[k - 1]`` at the same position.
        operands: strides of the further operands, 0 along broadcast dimensions.
        dtypes: of the target and of every operand in memory; see ``numbers``. Empty if all are the kernel's float.
    """

    tree: Expr = Operand(0)
    operands: tuple[Strides, ...] = ()
    dtypes: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        """Return the dtype of the target in memory."""
        return self.dtypes[0] if self.dtypes else FLOAT

    def dynamic(self, sizes: Sizes) -> Epilogue:
        """Return this epilogue with dynamic strides."""
        return Epilogue(self.tree, tuple(each.dynamic(sizes) for each in self.operands), self.dtypes)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Return the parameters of an inner function that stores results: addresses of target and operands."""
        return [("ptr", "target"), *(("ptr", f"operand{k}") for k in range(len(self.operands)))]


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """Generator of code for one geometry; equal kernels have the same code.

    Args:
        host: target machine.

    Attributes:
        kind: name in profiles.
        precision: type that "float" stands for in the code, as the host has it.
        sets_fault_flag: whether the last argument is a fault flag, an int set to 1 for a non-finite value and to 2 for
            an index out of range or an integer division by 0; the result must then be computed in another way.
        reads_sparsely: whether a run reads only a few of its constants.
    """

    kind: ClassVar[str]
    sets_fault_flag: ClassVar[bool] = False
    reads_sparsely: ClassVar[bool] = False
    host: Host = field(repr=False)
    precision: Precision = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", self.host.precision)

    @cached_property
    def name(self) -> str:
        """Return the name of the function; it identifies everything the code depends on except the host."""
        return f"{self.kind}_{hashlib.sha1(repr(self).encode()).hexdigest()[:16]}"

    @property
    def reported_kind(self) -> str:
        """Return the name in profiles."""
        return self.kind

    @property
    @abstractmethod
    def chunks(self) -> int:
        """Return the number of chunks."""

    @property
    def flops(self) -> int:
        """Return the floating-point operations of all chunks."""
        return 0

    @property
    def min_sizes(self) -> Sequence[tuple[int, int]]:
        """Return sizes and the minimum of each for which the code stays inside its tensors: a tile must fit."""
        return ()

    def dynamic(self, sizes: Sizes) -> Self:
        """Return this kernel with those sizes dynamic that its code can read at run time; itself if there are none.

        Derived values that the code does not recompute, such as the number of chunks, are made dynamic beside them.
        """
        return self

    def with_dynamic(self, sizes: Sizes, *names: str) -> Self:
        """Return this kernel with these fields dynamic, in this order."""
        values = {name: _dynamic(getattr(self, name), sizes) for name in names}
        if type(self).__post_init__ is not Kernel.__post_init__:
            return replace(self, **values)
        # Runs for every kernel of every new size. Cached properties of the static kernel must not be copied.
        dynamic = object.__new__(type(self))
        vars(dynamic).update({each.name: getattr(self, each.name) for each in fields(self)}, **values)
        return dynamic

    def write(self, module: Module) -> None:
        """Write the function into a module, in the kernel's precision."""
        with written_in(self.precision, fuses=self.host.has_fma):
            self.emit(module)

    @abstractmethod
    def emit(self, module: Module) -> None:
        """Emit the function; called by ``write``."""


@dataclass(frozen=True, kw_only=True)
class Convolution(Kernel):
    """Kernel that multiplies images, its first argument, by weights, its second.

    Args:
        batch, rows, columns: of the output.
        source, target: strides of the images, 1 along channels; ``source`` begins at the first tap of the first pixel.
        depth: windows along the planes where images are planes of volumes.
    """

    batch: int
    rows: int
    columns: int
    source: Strides
    target: Strides
    epilogue: Epilogue = field(default_factory=Epilogue)
    depth: WindowAxis | None = None

    def dynamic(self, sizes: Sizes) -> Self:
        return self.with_dynamic(sizes, "batch", "rows", "columns", "source", "target", "epilogue", "depth")

    @property
    @abstractmethod
    def packing(self) -> object:
        """Return everything the order of packed weights depends on."""

    @abstractmethod
    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Return weights (O, I/groups, KH, KW) and bias (O,) in the order the code reads them."""


def dynamic_if_symbolic(value: int, sizes: Sizes) -> int:
    """Return a symbolic number made dynamic, and any other number unchanged."""
    return sizes.dynamic(value) if is_symbolic(value) else value


def _dynamic(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, tuple):
        return tuple(_dynamic(each, sizes) for each in value)
    if value is None:
        return None
    return sizes.dynamic(value) if isinstance(value, int) else value.dynamic(sizes)


def specialised(kernel: K) -> K:
    """Return a kernel without symbolic sizes: those its code does not read at run time are fixed to their hints."""
    changed = {name: number for name, value in vars(kernel).items() if (number := _numbers(value)) is not value}
    if not changed:
        return kernel
    result = object.__new__(type(kernel))
    vars(result).update({**vars(kernel), **changed})
    return result


def _numbers(value: Any) -> Any:
    """Return a value with symbolic sizes replaced by numbers; the value itself if it has none."""
    if isinstance(value, Dim | Ratio):
        return value.specialise()
    if isinstance(value, tuple | list):
        items = [_numbers(each) for each in value]
        is_same = all(new is old for new, old in zip(items, value, strict=True))
        return value if is_same else type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    if not is_dataclass(value) or isinstance(value, type | Kernel | Host):
        return specialised(value) if isinstance(value, Kernel) else value
    old = {each.name: getattr(value, each.name) for each in fields(value)}
    new = {name: _numbers(each) for name, each in old.items()}
    if all(new[name] is each for name, each in old.items()):
        return value
    result = object.__new__(type(value))
    for name, each in new.items():
        object.__setattr__(result, name, each)
    return result


def derived(kernel: K, **values: object) -> K:
    """Return a kernel with these cached properties preset to dynamic values."""
    vars(kernel).update(values)
    return kernel


def start(module: Module, kernel: Kernel, n_arguments: int) -> tuple[Function, list[Value], Value]:
    """Start the function of a kernel; return it, its pointers and its chunk."""
    f = module.function(kernel.name, [("ptr", "arguments"), ("i64", "chunk")])
    table, chunk = f.parameters
    return f, [f.load("ptr", f.at(table, k, 8), 8) for k in range(n_arguments)], chunk


def block_of(f: Function, number: Index, size: int, end: int) -> tuple[Index, Index]:
    """Emit the half-open range of block ``number``; ``end`` is the end of all blocks."""
    first = f.mul(number, size)
    return first, f.minimum(f.add(first, size), end)


def element_address(
    f: Function, base: Value, strides: Strides, n: Index, h: Index, w: Index, c: Index, dtype: str = FLOAT
) -> Value:
    """Emit the address of an element."""
    offset: Index = 0
    size = size_of(dtype)
    for index, stride in ((n, strides.n), (h, strides.h), (w, strides.w), (c, strides.c)):
        part = f.mul(index, stride)
        if isinstance(part, int) and is_dynamic(offset):  # a constant offset folds into the load
            base = f.at(base, part, size)
        else:
            offset = f.add(offset, part)
    return f.at(base, offset, size)


@dataclass(frozen=True, kw_only=True)
class Lines(Kernel):
    """Kernel of independent lines.

    Attributes:
        dynamic_fields: names of fields that its code reads at run time.
        symbolic_fields: names of those it reads at run time only if they are symbolic.
    """

    dynamic_fields: ClassVar[tuple[str, ...]] = ()
    symbolic_fields: ClassVar[tuple[str, ...]] = ()

    def dynamic(self, sizes: Sizes) -> Self:
        symbolic = [name for name in self.symbolic_fields if is_symbolic(getattr(self, name))]
        names = [*self.dynamic_fields, *symbolic]
        return derived(self.with_dynamic(sizes, *names), block=sizes.dynamic_count(self.block)) if names else self

    @property
    @abstractmethod
    def lines(self) -> int:
        """Return the number of lines."""

    @property
    @abstractmethod
    def line_bytes(self) -> int:
        """Return the bytes read and written for one line, or its time in bytes moved."""

    @cached_property
    def block(self) -> int:
        """Return the number of lines in a chunk."""
        return largest(1, smallest(self.lines, self.host.chunk_bytes // self.line_bytes))

    @property
    def chunks(self) -> int:
        return -(-self.lines // self.block)
