"""What no tensor and no parameter may exceed, looked at before memory is asked for or a loop begins.

Sizes are products of Python integers, which do not wrap. The memory that counts is what this process may ever have:
of the machine, of the group of processes it is confined to, or of the process itself, whichever is least.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from engine.errors import ShapeError
from engine.tensor import DType, Shape, TensorSpec, format_shape

MAX_RANK: Final = 64
"""Dimensions numpy can have."""

MAX_ITEMS: Final = 2**16
"""Items of a list given as a parameter: a thousand times what the longest real ones have."""

INT_RANGE: Final = range(-(2**63), 2**63)
"""What an integer of a graph may be: the format and every tensor hold 64 bits."""

MAX_STEPS: Final = 2**20
"""Turns of a loop of Python that a parameter alone can ask for; each turn computes an array."""

_CGROUPS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNSHOWN: Final = 8


@lru_cache(maxsize=1)
def memory_bytes() -> int:
    """Memory this process may have in all; found out once."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUPS:
        try:
            text = path.read_text().strip()
        except (OSError, ValueError):
            continue
        found += [int(text)] if text.isdecimal() else []
    return min(size for size in (*found, *_own_limits()) if size > 0)


def _own_limits() -> list[int]:
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return [limit for limit in limits if limit != resource.RLIM_INFINITY]


def check_size(shape: Sequence[int | None], dtype: DType, what: str = "the result") -> None:
    """Refuse a tensor that cannot be: too many dimensions, a negative one, or more bytes than there is memory.

    Args:
        shape: open dimensions count as one.
        what: what the tensor is, for the message.

    Raises:
        ShapeError: naming the shape, and both sizes in bytes.
    """
    if len(shape) > MAX_RANK:
        raise ShapeError(f"{what} has too many dimensions", found=len(shape), expected=f"at most {MAX_RANK}")
    known = [dim for dim in shape if dim is not None]
    if known and min(known) < 0:
        raise ShapeError(f"{what} has a negative dimension", found=show_shape(shape))
    # Zeros are left out: numpy refuses the product of the other dimensions too.
    size = math.prod(dim for dim in known if dim) * dtype.itemsize
    if size > memory_bytes():
        found = f"{show_shape(shape)} {dtype.name}" + (f", {size:,} bytes" if size in INT_RANGE else "")
        raise ShapeError(f"{what} is too large", found=found, expected=f"at most {memory_bytes():,} bytes")


def check_results(value: object) -> None:
    """Refuse what a layer announces, if a tensor in it cannot be.

    Raises:
        ShapeError: see check_size().
    """
    if isinstance(value, TensorSpec):
        check_size(value.shape, value.dtype)
    elif isinstance(value, (tuple, list)):
        for item in value:
            check_results(item)


def show_shape(shape: Shape | Sequence[int | None]) -> str:
    """A shape as messages print it, cut short where it has more dimensions than anybody reads."""
    short = format_shape(shape[:_UNSHOWN])
    return short if len(shape) <= _UNSHOWN else f"{short[:-1]}, ... ({len(shape)} in all)]"
