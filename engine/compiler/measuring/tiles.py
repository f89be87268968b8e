"""Check of the tile instructions (AMX) on this machine, before the first kernel with them is compiled."""

from __future__ import annotations

import ctypes
import logging
import re
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.matrix_conv import in_tiles
from engine.compiler.kernels.convolution.tiles import ConvTile
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.errors import CompileError

_log = logging.getLogger("pnnx_serve.engine")
# Rows, numbers of a row, and columns of the product; no number of them fills tiles.
_ROWS, _TERMS, _COLUMNS = 45, 96, 27
_CHECKED: Final[tuple[Words, ...]] = ("int8", "bfloat16")


@cache
def checked(host: Host) -> Host:
    """Return a host, without tile instructions if they give wrong results."""
    used = [words for words in _CHECKED if ARITHMETIC[words].has_tiles(host)]
    try:
        if all(_is_exact(host, words) for words in used):
            return host
        found = "wrong results"
    except CompileError as error:
        found = str(error)
    _log.warning("the tile instructions (AMX) of this processor are not used: %s", found)
    return replace(host, features=re.sub(r",\+amx-\w+", "", host.features))


def _is_exact(host: Host, words: Words) -> bool:
    """Return whether the product of two matrices of whole numbers is exact."""
    own, random = ARITHMETIC[words], np.random.default_rng(1)
    low, high = (0, 256) if words == "int8" else (-64, 64)
    left, right = random.integers(low, high, (_ROWS, _TERMS)), random.integers(-64, 64, (_COLUMNS, _TERMS))
    kernel = _kernel(host, words)
    rows = left.astype(np.float32).astype(own.image).view(np.float32)
    packed = kernel.pack(right.astype(np.float32).astype(own.weight)[..., None, None], None)
    result, module = np.empty((_ROWS, _COLUMNS), np.float32), Module()
    kernel.write(module)
    code = object_code.Code([object_code.assemble(str(module), host)], host)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address(kernel.name))
    table = np.array([each.ctypes.data for each in (rows, packed, result)], np.int64)
    for chunk in range(kernel.chunks):
        call(table.ctypes.data, chunk)
    return np.array_equal(result, left @ right.T)


def _kernel(host: Host, words: Words) -> Conv:
    count = _TERMS // ARITHMETIC[words].numbers
    return in_tiles(
        Conv(
            batch=1,
            rows=1,
            columns=_ROWS,
            in_channels=count,
            out_channels=_COLUMNS,
            groups=1,
            kernel=(1, 1),
            stride=(1, 1),
            dilation=(1, 1),
            source=Strides(0, 0, count),
            target=Strides(0, 0, _COLUMNS),
            tile=ConvTile(1, 1, 1),
            host=host,
            epilogue=Epilogue(apply("whole_sum", Operand(0)) if words == "int8" else Operand(0)),
            words=words,
        )
    )
