"""Where results go."""

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
