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
