"""Modules and functions of IR text: blocks, loops, branches.

Every instruction and every byte of stack passes through here, so code size is limited here: a generator that unrolls
something proportional to a tensor or a parameter is stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.compiler.codegen.ir.instructions import Instructions
from engine.compiler.codegen.ir.sizes import READ
from engine.compiler.codegen.ir.values import Index, Value, as_value, real_bytes

# Largest stack memory of a function, in bytes.
STACK_BYTES = 1 << 20
# Most instructions of a basic block, for which LLVM's time grows with their square, and of a module.
BLOCK_OPERATIONS = 8_000
MODULE_OPERATIONS = 40_000
# The table of dynamic sizes, and the values read from it.
TABLE = Value("%sizes", "ptr")
_READS = re.compile(rf"{READ}(\d+)")


class TooLargeError(Exception):
    """A kernel needs more stack or more code than allowed."""


@dataclass(slots=True)
class Loop:
    """Loop being emitted: index, carried values, and results after it."""

    index: Value
    carried: list[Value]
    results: list[Value] = field(default_factory=list)
    following: list[Value] | None = None
    condition: Value | None = None

    def carry(self, values: Sequence[Value], *, condition: Value | None = None) -> None:
        """Set the carried values of the next iteration; once in every body that carries.

        Args:
            condition: an i1 that ends the loop early if it is false.
        """
        self.following, self.condition = list(values), condition


class Module:
    """Translation unit: functions and the intrinsics they declare.

    Args:
        is_dynamic: whether sizes are read at run time: then every function receives the table of sizes.
    """

    def __init__(self, *, is_dynamic: bool = False) -> None:
        self.functions: dict[str, Function] = {}
        self.declarations: dict[str, str] = {}
        self.operations = 0
        self.is_dynamic = is_dynamic

    def function(self, name: str, parameters: Sequence[tuple[str, str]], *, result: str = "void") -> Function:
        """Add a function; ``parameters`` are (type, name)."""
        self.functions[name] = Function(self, name, parameters, result)
        return self.functions[name]

    def entry(self, name: str, parameters: Sequence[tuple[str, str]]) -> Function:
        """Add a function for callers that pass no table of sizes."""
        f = self.function(name, parameters)
        f.takes_sizes = False
        return f

    def inner(self, name: str, parameters: Sequence[tuple[str, str]], *, result: str = "void") -> Function:
        """Add a function internal to this module; it is not inlined, so it has all registers to itself."""
        f = self.function(name, parameters, result=result)
        f.linkage, f.attributes = "internal ", "nounwind noinline"
        return f

    def __str__(self) -> str:
        return "\n".join([*self.declarations.values(), *(str(f) for f in self.functions.values()), ""])


class Function(Instructions):
    """Function of a module; instructions are appended in order."""

    def __init__(self, module: Module, name: str, parameters: Sequence[tuple[str, str]], result: str) -> None:
        self.module = module
        self.name = name
        self.result = result
        self.parameters = [Value(f"%{each}", type_) for type_, each in parameters]
        self.attributes = "nounwind"
        self.linkage = ""
        self.takes_sizes = module.is_dynamic
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"
        self._in_block = 0
        self._reserved = 0

    def __str__(self) -> str:
        parameters = ", ".join(f"{each.type} {each.text}" for each in self.all_parameters)
        head = f"define {self.linkage}{self.result} @{self.name}({parameters}) {self.attributes} {{"
        body = "\n".join(self._lines)
        return "\n".join([head, "entry:", *self._reads(body), body, "}", ""])

    @property
    def all_parameters(self) -> list[Value]:
        """Return the parameters, and the table of sizes if there is one."""
        return [*self.parameters, *([TABLE] if self.takes_sizes else [])]

    def _reads(self, body: str) -> Iterator[str]:
        """Yield the instructions that load the sizes in use."""
        indices = {int(each) for each in _READS.findall(body)} if self.takes_sizes else ()
        for index in sorted(indices):
            yield f"  %size.at{index} = getelementptr i64, ptr {TABLE.text}, i64 {index}"
            yield f"  {READ}{index} = load i64, ptr %size.at{index}, align 8"

    def call(self, name: str, arguments: Sequence[Value], result: str = "void") -> Value:
        """Call a function of this module or an intrinsic, which is declared if not defined here."""
        called = self.module.functions.get(name)
        takes_sizes = called is not None and called.takes_sizes
        return super().call(name, [*arguments, TABLE] if takes_sizes else arguments, result)

    def op(self, type_: str, text: str) -> Value:
        """Emit an instruction and return its result."""
        value = Value(f"%{self._fresh('v')}", type_)
        self._write(f"  {value.text} = {text}")
        return value

    def do(self, text: str) -> None:
        """Emit an instruction without a result."""
        self._write(f"  {text}")

    def _write(self, line: str) -> None:
        self._lines.append(line)
        self._in_block += 1
        self.module.operations += 1
        if self._in_block > BLOCK_OPERATIONS or self.module.operations > MODULE_OPERATIONS:
            raise TooLargeError("the code of its kernel would be too large")

    def declare(self, name: str, result: str, types: Sequence[str]) -> None:
        """Declare an external function, unless it is in this module."""
        if name not in self.module.functions:
            self.module.declarations[name] = f"declare {result} @{name}({', '.join(types)})"

    def reserve(self, count: int, size: int | None = None) -> Value:
        """Reserve stack memory for ``count`` elements of ``size`` bytes, 64-byte aligned; at a function's beginning.

        Raises:
            TooLargeError: it exceeds the stack limit.
        """
        size = size or real_bytes()
        self._reserved += count * size
        if self._reserved > STACK_BYTES:
            raise TooLargeError("its kernel would need too much stack memory")
        return self.op("ptr", f"alloca [{count * size} x i8], align 64")

    @contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1, carry: Sequence[Value] = ()) -> Iterator[Loop]:
        """Count from ``start`` to below ``stop``; ``results`` holds the carried values afterwards."""
        if isinstance(start, int) and isinstance(stop, int) and start >= stop:
            raise ValueError(f"a loop from {start} to {stop} has no iteration")
        is_certain = isinstance(start, int) and isinstance(stop, int)
        name = self._fresh("loop")
        before, body, after = self._block, f"{name}.body", f"{name}.after"
        if is_certain:
            self.jump(body)
        else:
            self.branch(self.less(start, stop), body, after)
        self.start(body)
        first_line = len(self._lines)
        index = Value(f"%{name}.i", "i64")
        carried = [Value(f"%{name}.c{k}", each.type) for k, each in enumerate(carry)]
        self._lines.extend([""] * (1 + len(carried)))
        loop = Loop(index, carried)
        yield loop
        following = loop.following if loop.following is not None else carried
        advanced = self.add(index, step)
        continues = self.less(advanced, stop)
        if loop.condition is not None:
            continues = self.binary("and", continues, loop.condition)
        last = self._block
        self.branch(continues, body, after)
        ends = zip((as_value(start), *carry), (index, *carried), (as_value(advanced), *following), strict=True)
        for k, (first, value, back) in enumerate(ends):
            self._lines[first_line + k] = f"  {value.text} = {_phi((first, before), (back, last))}"
        self.start(after)
        if is_certain:
            loop.results = following
        else:
            pairs = zip(carry, following, strict=True)
            loop.results = [self.phi((first, before), (back, last)) for first, back in pairs]

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Emit code that runs only if an i1 is true."""
        name = self._fresh("when")
        with self._conditional(name, condition, f"{name}.then", f"{name}.after"):
            yield

    @contextmanager
    def unless(self, condition: Value) -> Iterator[None]:
        """Emit code that runs only if an i1 is false."""
        name = self._fresh("unless")
        with self._conditional(name, condition, f"{name}.after", f"{name}.then"):
            yield

    def select_lazily(
        self, usual: Sequence[Value], condition: Value, otherwise: Callable[[], Sequence[Value]]
    ) -> list[Value]:
        """Return the usual values, or others if an i1 is true, which are computed only then."""
        before = self._block
        with self.when(condition):
            others, inside = otherwise(), self._block
        return [self.phi((a, before), (b, inside)) for a, b in zip(usual, others, strict=True)]

    @contextmanager
    def _conditional(self, name: str, condition: Value, on: str, off: str) -> Iterator[None]:
        self.branch(condition, on, off)
        self.start(f"{name}.then")
        yield
        self.jump(f"{name}.after")
        self.start(f"{name}.after")

    def block(self, stem: str) -> str:
        """Return a new label; see ``start``."""
        return self._fresh(stem)

    def start(self, label: str) -> None:
        """Begin the block of a label; the previous block must have ended in a branch."""
        self._lines.append(f"{label}:")
        self._block = label
        self._in_block = 0

    def jump(self, label: str) -> None:
        """Branch to a label."""
        self.do(f"br label %{label}")

    def branch(self, condition: Value, on: str, off: str) -> None:
        """Branch to one of two labels."""
        self.do(f"br i1 {condition.text}, label %{on}, label %{off}")

    def phi(self, *incoming: tuple[Value, str]) -> Value:
        """Emit the value that belongs to the preceding block, from pairs of value and label."""
        return self.op(incoming[0][0].type, _phi(*incoming))

    def finish(self, result: Value | None = None) -> None:
        """Emit the return instruction; the last thing in a function."""
        self.do("ret void" if result is None else f"ret {result.type} {result.text}")

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"


def _phi(*incoming: tuple[Value, str]) -> str:
    return f"phi {incoming[0][0].type} " + ", ".join(f"[ {value.text}, %{label} ]" for value, label in incoming)
