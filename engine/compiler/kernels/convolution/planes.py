"""Volumes as consecutive image planes: the planes that the windows of an output plane read.

Planes are not padded; taps of a window outside the volume are skipped.
"""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Index, Value, as_value
from engine.compiler.kernels.axis import WindowAxis


def is_clipped(depth: WindowAxis | None) -> bool:
    """Return whether some windows cross the first or the last plane."""
    return depth is not None and not depth.is_inside


def met_parameters(depth: WindowAxis | None) -> list[tuple[str, str]]:
    """Return the parameters of an inner function for clipped windows: planes of taps to skip, and to take."""
    return [("i64", "skipped"), ("i64", "taken")] if is_clipped(depth) else []


def first_plane(f: Function, depth: WindowAxis | None, n: Index) -> tuple[Index, list[Value]]:
    """Emit the first plane an output plane reads, counted through all volumes, and the clipped windows' arguments."""
    if depth is None:
        return n, []
    volume, window = f.divmod(n, depth.count)
    first, _ = depth.clip(f, window)
    met = [as_value(each) for each in depth.met(f, window)] if is_clipped(depth) else []
    return f.add(f.mul(volume, depth.size), first), met
