"""Output of results, and display name of a model."""

from __future__ import annotations

import sys
from pathlib import Path


def write_result(content: bytes, output: str | None) -> None:
    """Write to a file, or to stdout unchanged."""
    if output is not None:
        Path(output).write_bytes(content)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


def title(name: str) -> str:
    """Return the name of a stored model, or of a file without folder and endings."""
    return Path(name).name.removesuffix(".param").removesuffix(".pnnx").removesuffix(".onnx")
