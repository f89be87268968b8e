"""The package that knows ONNX's messages and schemas, imported when a first file is read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from engine.errors import ModelFormatError

_EXTRA: Final = "pip install 'pnnx-serve[onnx]', or 'pnnx-serve export MODEL.onnx' where it is installed"


@lru_cache(maxsize=1)
def library() -> Any:
    """The module ``onnx``.

    Raises:
        ModelFormatError: it is not installed; names the extra.
    """
    try:
        import onnx
        import onnx.defs
    except ImportError:
        raise ModelFormatError("ONNX files need the package 'onnx'", found="none", expected=_EXTRA) from None
    return onnx
