"""What every kernel is: a function of (arguments, chunk) that any thread may call for any chunk, in any order.

``arguments`` is a table of pointers in the order the kernel states; ``chunk`` counts pieces of work that write disjoint
parts of the output (or the same values). Sizes and strides are constants of the code, and layers of equal geometry
share one function, found by its name; or some of them are open (``opened``), and code reads them from a table when it
runs, so that it serves many shapes.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Precision, Sizes, Value, is_open, written_in
from engine.compiler.kernels.axis import WindowAxis
from engine.compiler.kernels.expr import Expr, Operand
from engine.ir.dims import Dim, is_symbolic
from engine.tensor import Array

K = TypeVar("K", bound="Kernel")


@dataclass(frozen=True, slots=True)
class Strides:
    """Where the elements of a tensor seen as (n, h, w, c) lie: distance in elements along each dimension."""

    n: int
    h: int
    w: int
    c: int = 1

    def opened(self, sizes: Sizes) -> Strides:
        """Strides that depend on how large images are, open; those of pixels and channels where they are symbolic."""
        return Strides(
            sizes.open(self.n), sizes.open(self.h), open_symbolic(self.w, sizes), open_symbolic(self.c, sizes)
        )

    def offset(self, n: int, h: int, w: int, c: int = 0) -> int:
        """Distance of an element from the first."""
        return n * self.n + h * self.h + w * self.w + c * self.c


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What happens to a result before it is stored.

    Args:
        tree: operand 0 is the result itself, operand k the element of ``operands[k - 1]`` at the same place.
        operands: strides of the further operands, 0 along a dimension they are broadcast over.
    """

    tree: Expr = Operand(0)
    operands: tuple[Strides, ...] = ()

    def opened(self, sizes: Sizes) -> Epilogue:
        """The same of images of other sizes."""
        return Epilogue(self.tree, tuple(each.opened(sizes) for each in self.operands))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Of an inner function that makes results: addresses of the target and the operands."""
        return [("ptr", "target"), *(("ptr", f"operand{k}") for k in range(len(self.operands)))]


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """Code for one geometry; equal kernels are the same code.

    Args:
        host: what the code is for.

    Attributes:
        kind: what profiles call it.
        precision: what "float" stands for in its code, as the host has it.
        sets_alarm: whether its last argument is an alarm, an int that becomes 1 where it meets what is not finite, 2
            where an index is outside of a table, or an integer is divided by 0: its result is to be computed in
            another way then.
        reads_few: whether a run reads few of its constants.
    """

    kind: ClassVar[str]
    sets_alarm: ClassVar[bool] = False
    reads_few: ClassVar[bool] = False
    host: Host = field(repr=False)
    precision: Precision = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", self.host.precision)

    @cached_property
    def name(self) -> str:
        """Names the function; everything the code depends on is in it but the host."""
        return f"{self.kind}_{hashlib.sha1(repr(self).encode()).hexdigest()[:16]}"

    @property
    def reported_kind(self) -> str:
        """What profiles call it."""
        return self.kind

    @property
    @abstractmethod
    def chunks(self) -> int:
        """How many pieces the work falls into."""

    @property
    def flops(self) -> int:
        """Floating-point operations of all chunks."""
        return 0

    @property
    def least_sizes(self) -> Sequence[tuple[int, int]]:
        """Return sizes, each with the least value for which its code stays inside its tensors: tiles have to fit."""
        return ()

    def opened(self, sizes: Sizes) -> Self:
        """The same with those sizes open that its code can read when it runs; itself where that is none.

        What is derived from them in ways that code does not follow, as chunks are, is opened beside them.
        """
        return self

    def with_open(self, sizes: Sizes, *names: str) -> Self:
        """The same with these fields open, in this order: numbers, and what is made of some."""
        values = {name: _opened(getattr(self, name), sizes) for name in names}
        if type(self).__post_init__ is not Kernel.__post_init__:
            return replace(self, **values)
        # For every kernel of every new size: what has been derived of the others must not come along.
        opened = object.__new__(type(self))
        vars(opened).update({each.name: getattr(self, each.name) for each in fields(self)}, **values)
        return opened

    def write(self, module: Module) -> None:
        """Write the function into a module, in numbers of its precision."""
        with written_in(self.precision):
            self.emit(module)

    @abstractmethod
    def emit(self, module: Module) -> None:
        """Write the function; see write()."""


@dataclass(frozen=True, kw_only=True)
class Convolution(Kernel):
    """A kernel that multiplies images, its first argument, by weights, its second.

    Args:
        batch, rows, columns: of the output.
        source, target: strides of the images, 1 along channels; ``source`` begins at the first tap of the first pixel.
        depth: where images are planes of volumes, the windows along these.
    """

    batch: int
    rows: int
    columns: int
    source: Strides
    target: Strides
    epilogue: Epilogue = field(default_factory=Epilogue)
    depth: WindowAxis | None = None

    def opened(self, sizes: Sizes) -> Self:
        return self.with_open(sizes, "batch", "rows", "columns", "source", "target", "epilogue", "depth")

    @property
    @abstractmethod
    def packing(self) -> object:
        """All that the order of packed weights depends on."""

    @abstractmethod
    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Weights (O, I/groups, KH, KW) and bias (O,) in the order the code reads them."""


def open_symbolic(value: int, sizes: Sizes) -> int:
    """Return a symbolic number open, and another one as it is: code is for it alone."""
    return sizes.open(value) if is_symbolic(value) else value


def _opened(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, tuple):
        return tuple(_opened(each, sizes) for each in value)
    if value is None:
        return None
    return sizes.open(value) if isinstance(value, int) else value.opened(sizes)


def with_numbers(kernel: K) -> K:
    """Return a kernel without symbolic sizes: those its code does not read when it runs are what they are now."""
    changed = {name: number for name, value in vars(kernel).items() if (number := _numbers(value)) is not value}
    if not changed:
        return kernel
    specialised = object.__new__(type(kernel))
    vars(specialised).update({**vars(kernel), **changed})
    return specialised


def _numbers(value: Any) -> Any:
    """Return a value with its symbolic sizes as numbers; the value itself where there are none."""
    if isinstance(value, Dim):
        return value.specialise()
    if isinstance(value, tuple | list):
        items = [_numbers(each) for each in value]
        is_same = all(new is old for new, old in zip(items, value, strict=True))
        return value if is_same else type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    if not is_dataclass(value) or isinstance(value, type | Kernel | Host):
        return with_numbers(value) if isinstance(value, Kernel) else value
    old = {each.name: getattr(value, each.name) for each in fields(value)}
    new = {name: _numbers(each) for name, each in old.items()}
    if all(new[name] is each for name, each in old.items()):
        return value
    specialised = object.__new__(type(value))
    for name, each in new.items():
        object.__setattr__(specialised, name, each)
    return specialised


def derived(kernel: K, **values: object) -> K:
    """A kernel of which some cached properties are known: they are open, too."""
    vars(kernel).update(values)
    return kernel


def start(module: Module, kernel: Kernel, n_arguments: int) -> tuple[Function, list[Value], Value]:
    """The function of a kernel, its pointers and its chunk."""
    f = module.function(kernel.name, [("ptr", "arguments"), ("i64", "chunk")])
    table, chunk = f.parameters
    return f, [f.load("ptr", f.at(table, k, 8), 8) for k in range(n_arguments)], chunk


def block_of(f: Function, number: Index, size: int, end: int) -> tuple[Index, Index]:
    """The pieces of a block of ``size``, from the first to before the last; ``end`` is that of all blocks."""
    first = f.mul(number, size)
    return first, f.minimum(f.add(first, size), end)


def place(f: Function, base: Value, strides: Strides, n: Index, h: Index, w: Index, c: Index) -> Value:
    """The address of an element."""
    offset: Index = 0
    for index, stride in ((n, strides.n), (h, strides.h), (w, strides.w), (c, strides.c)):
        part = f.mul(index, stride)
        if isinstance(part, int) and is_open(offset):  # what is known is left to the instruction that reads there
            base = f.at(base, part)
        else:
            offset = f.add(offset, part)
    return f.at(base, offset)
