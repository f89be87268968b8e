"""Kernels with dynamic sizes: emitted once, reused for every shape that passes their guards."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.compiler.codegen.ir import GuardedTable, Module, Sizes
from engine.compiler.codegen.ir.function import TABLE
from engine.compiler.kernels.kernel import Kernel, specialised
from engine.ir.dims import hint, is_symbolic

# Most bytes of cached object code of kernels with dynamic sizes.
KEPT_BYTES: Final = 64 << 20
# Attribute of a kernel that caches its dynamic_kernels.
_KEPT_AS: Final = "dynamic_kernels"


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a kernel: its function, and the numbers passed after its pointers."""

    function: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CachedCall(Call):
    """Cached code of a kernel.

    Args:
        code: empty while it is being compiled.
    """

    code: bytes = b""


@dataclass(frozen=True, slots=True)
class _Variant:
    """Code with its guards."""

    function: str
    table: GuardedTable
    code: bytes


class DynamicKernel:
    """Kernel with dynamic sizes.

    Args:
        host: its key.
        pointers: number of pointer arguments.

    Attributes:
        sizes: its dynamic sizes.
        key: identifies its code except for the guards.
    """

    def __init__(self, kernel: Kernel, host: str, pointers: int) -> None:
        self.sizes = Sizes()
        self._kernel = specialised(kernel.dynamic(self.sizes))
        self._pointers = pointers
        self.key = f"{host} {self._kernel.name} {pointers} {self.sizes.pattern}"

    @property
    def is_dynamic(self) -> bool:
        """Return whether it has dynamic sizes."""
        return bool(self.sizes.values)

    @property
    def call(self) -> Call:
        """Return how the emitted code is called."""
        return Call(self._function, tuple(self.sizes.numbers(self.sizes.values)))

    @property
    def _function(self) -> str:
        """Return the function's name, which identifies everything the code depends on."""
        guards = list(self.sizes.guards.items())
        return f"{self._kernel.kind}_{hashlib.sha1(f'{self.key} {guards}'.encode()).hexdigest()[:16]}"

    def write(self) -> Module:
        """Emit the code; its guards are known afterwards.

        Raises:
            TooLargeError: it would be too much code.
        """
        module = Module(is_dynamic=True)
        self._kernel.write(module)
        for each in module.functions.values():
            each.linkage = "internal "
        f = module.entry(self._function, [("ptr", "arguments"), ("i64", "chunk")])
        arguments, chunk = f.parameters
        f.do(f"{TABLE.text} = getelementptr i64, ptr {arguments.text}, i64 {self._pointers}")
        f.call(self._kernel.name, [arguments, chunk])
        f.finish()
        return module


def dynamic_kernel_of(kernel: Kernel, host: str, pointers: int) -> DynamicKernel:
    """Return the dynamic of a kernel, cached because kernel selection and assembly both need it.

    Args:
        host, pointers: as for ``DynamicKernel``.
    """
    known: dict[tuple[str, int], DynamicKernel] = vars(kernel).setdefault(_KEPT_AS, {})
    if (host, pointers) not in known:
        known[host, pointers] = DynamicKernel(kernel, host, pointers)
    return known[host, pointers]


class DynamicKernelCache:
    """LRU cache of the code of kernels with dynamic sizes."""

    def __init__(self) -> None:
        self._variants: OrderedDict[str, tuple[_Variant, ...]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, dynamic: DynamicKernel) -> CachedCall | None:
        """Return code that is correct for these sizes, or None.

        For symbolic sizes, the guards of the code are added to the symbolic guards.
        """
        values = dynamic.sizes.values
        found = self._find(dynamic.key, hint(values))
        if found is None or (is_symbolic(values) and not found.table.fits(values)):
            return None
        return CachedCall(found.function, tuple(found.table.numbers(values)), found.code)

    def _find(self, key: str, values: Sequence[int]) -> _Variant | None:
        with self._lock:
            variants = self._variants.get(key, ())
            if variants:
                self._variants.move_to_end(key)
        return next((each for each in variants if each.table.fits(values)), None)

    def keep(self, dynamic: DynamicKernel, code: bytes) -> None:
        """Add code and evict what no longer fits."""
        function = dynamic.call.function
        with self._lock:
            variants = self._variants.get(dynamic.key, ())
            if all(each.function != function for each in variants):
                self._variants[dynamic.key] = *variants, _Variant(function, GuardedTable(dynamic.sizes), code)
                self._variants.move_to_end(dynamic.key)
                self._bytes += len(code)
            while self._bytes > KEPT_BYTES:
                _, forgotten = self._variants.popitem(last=False)
                self._bytes -= sum(len(each.code) for each in forgotten)


DYNAMIC_KERNELS: Final = DynamicKernelCache()
