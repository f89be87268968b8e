"""What is shown while something takes long: one line on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show what is being done, on stderr, until it is done."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    print(f"{doing} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def write_result(content: bytes, output: str | None) -> None:
    """Send text to a file, or to stdout as it is."""
    if output is not None:
        Path(output).write_bytes(content)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
