"""Runs of single kernels: assembled for a host, called for every chunk."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.compiler.assembly.dynamic_kernels import DYNAMIC_KERNELS, DynamicKernel
from engine.compiler.codegen.host import Host, describe, detect
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.object_code import Code, assemble
from engine.compiler.kernels.kernel import Kernel, Strides
from engine.tensor import Array

_X86 = ("avx512", "avx2", "sse")
_OWN = detect().name
# Levels the processor can run: its own and those below.
LEVELS = _X86[_X86.index(_OWN) :] if _OWN in _X86 else (_OWN,)

_FLAGS = frozenset(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else frozenset()
# Also the processor's own dot product instructions, of AVX-512 and of AVX.
HOSTS = [
    *map(describe, LEVELS),
    *([detect()] if detect().has_vnni else []),
    *([replace(describe("avx2"), features=f"{describe('avx2').features},+avxvnni")] if "avx_vnni" in _FLAGS else []),
]
HOST_NAMES = [f"{host.name} vnni" if host.has_vnni else host.name for host in HOSTS]


def dense(height: int, width: int, channels: int) -> Strides:
    """Return the strides of contiguous images (n, h, w, c)."""
    return Strides(height * width * channels, width * channels, channels)


def run(
    kernel: Kernel, level: str, arguments: Sequence[Array], skipped: Sequence[int] = (), *, is_reversed: bool = True
) -> None:
    """Run all chunks, the last first: no chunk may depend on another.

    ``skipped`` are the bytes between the beginning of an argument's array and the address passed to the kernel.
    """
    host = kernel.host if kernel.host.name == level else describe(level)
    module = Module()
    kernel.write(module)
    offsets = [*skipped, *[0] * (len(arguments) - len(skipped))]
    table = [each.ctypes.data + offset for each, offset in zip(arguments, offsets, strict=True)]
    chunks = range(kernel.chunks)[:: -1 if is_reversed else 1]
    before = [each.copy() for each in arguments] if level == LEVELS[0] else []
    _run(assemble(str(module), host), kernel.name, host, table, chunks)
    if before:
        _run_dynamic(kernel, host, table, chunks, arguments, before)


def _run(code: bytes, name: str, host: Host, table: Sequence[int], chunks: Sequence[int]) -> None:
    loaded, numbers = Code([code], host), np.array(table, np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address(name))
    for chunk in chunks:
        call(numbers.ctypes.data, chunk)


def _run_dynamic(
    kernel: Kernel,
    host: Host,
    table: Sequence[int],
    chunks: Sequence[int],
    arguments: Sequence[Array],
    before: Sequence[Array],
) -> None:
    """Check that the kernel with dynamic sizes gives the same bits, also with code emitted for another shape."""
    dynamic = DynamicKernel(kernel, host.key, len(table))
    if not dynamic.is_dynamic:
        return
    found = DYNAMIC_KERNELS.find(dynamic)
    if found is None:
        code, call = assemble(str(dynamic.write()), host), dynamic.call
        DYNAMIC_KERNELS.keep(dynamic, code)
    else:
        code, call = found.code, found
    after = [each.copy() for each in arguments]
    for argument, content in zip(arguments, before, strict=True):
        if argument.flags.writeable:
            argument[...] = content
    _run(code, call.function, host, [*table, *call.numbers], chunks)
    for argument, content in zip(arguments, after, strict=True):
        # numpy's comparison does not support NaN of bfloat16.
        dtype = np.uint16 if argument.dtype.kind == "V" else argument.dtype
        np.testing.assert_array_equal(argument.view(dtype), content.view(dtype))
