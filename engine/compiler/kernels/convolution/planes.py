"""Volumes as planes, images one after the other: which planes the windows of an output plane meet.

There are no zeros beyond the first and the last plane; taps that a window has there are left out.
"""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Index, Value, as_value
from engine.compiler.kernels.axis import WindowAxis


def is_clipped(depth: WindowAxis | None) -> bool:
    """Whether some windows hang over the first or the last plane."""
    return depth is not None and not depth.is_inside


def met_parameters(depth: WindowAxis | None) -> list[tuple[str, str]]:
    """What an inner function is told of clipped windows: planes of taps to skip, and to take."""
    return [("i64", "skipped"), ("i64", "taken")] if is_clipped(depth) else []


def first_plane(f: Function, depth: WindowAxis | None, n: Index) -> tuple[Index, list[Value]]:
    """The plane that an output plane reads first, both counted through all volumes, and the parameters above."""
    if depth is None:
        return n, []
    volume, window = f.divmod(n, depth.count)
    first, _ = depth.clip(f, window)
    met = [as_value(each) for each in depth.met(f, window)] if is_clipped(depth) else []
    return f.add(f.mul(volume, depth.size), first), met
