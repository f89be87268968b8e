"""Kernels run on their own: assembled for a host, called for every chunk."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from engine.compiler.codegen.host import describe, detect
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.object_code import Code, assemble
from engine.compiler.kernels.kernel import Kernel, Strides
from engine.tensor import Array

_X86 = ("avx512", "avx2", "sse")
_OWN = detect().name
# What the processor can run: its own level and those below.
LEVELS = _X86[_X86.index(_OWN) :] if _OWN in _X86 else (_OWN,)


def dense(height: int, width: int, channels: int) -> Strides:
    """Strides of images (n, h, w, c) without a gap."""
    return Strides(height * width * channels, width * channels, channels)


def run(
    kernel: Kernel, level: str, arguments: Sequence[Array], skipped: Sequence[int] = (), *, is_reversed: bool = True
) -> None:
    """Run all chunks, the last first: no chunk may depend on another.

    ``skipped`` are the bytes between the beginning of an argument's array and where the kernel is told it begins.
    """
    host = describe(level)
    module = Module()
    kernel.emit(module)
    code = Code([assemble(str(module), host)], host)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address(kernel.name))
    offsets = [*skipped, *[0] * (len(arguments) - len(skipped))]
    table = np.array([each.ctypes.data + offset for each, offset in zip(arguments, offsets, strict=True)], np.int64)
    for chunk in range(kernel.chunks)[:: -1 if is_reversed else 1]:
        call(table.ctypes.data, chunk)
