"""Numbers on a command line."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """An integer of at least 1.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"found '{text}', expected a positive whole number")
    return int(text)


def duration(text: str) -> float:
    """Seconds, more than none.

    Raises:
        ArgumentTypeError: it is no such number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"found '{text}', expected a positive number of seconds")
    return seconds


def shape(text: str) -> tuple[int, ...]:
    """Sizes by comma, ``1,3,224,224``.

    Raises:
        ArgumentTypeError: it is no shape.
    """
    sizes = [size.strip() for size in text.strip().removeprefix("[").removesuffix("]").split(",")]
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise argparse.ArgumentTypeError(f"found '{text}', expected sizes by comma, such as 1,3,224,224")
    return tuple(map(int, sizes))
