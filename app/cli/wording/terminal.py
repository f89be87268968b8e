"""Where results go, and what a drawing or a report calls its model."""

from __future__ import annotations

import sys
from pathlib import Path


def write_result(content: bytes, output: str | None) -> None:
    """Send text to a file, or to stdout as it is."""
    if output is not None:
        Path(output).write_bytes(content)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


def title(name: str) -> str:
    """The name of a store, or that of a file without its endings: nothing of the folder where somebody had it."""
    return Path(name).name.removesuffix(".param").removesuffix(".pnnx").removesuffix(".onnx")
