"""Where a tensor lies that is not in the message: a part of a region of shared memory, as its parameters say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.protocol.v2.errors import RefusedError
from app.wording import brief

REGION: Final = "shared_memory_region"
_SIZE: Final = "shared_memory_byte_size"
_OFFSET: Final = "shared_memory_offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A part of a region of shared memory: an offset, and a number of bytes."""

    region: str
    size: int
    offset: int


def read_place(parameters: Mapping[str, Any], where: str) -> Place | None:
    """The place that parameters name; None where they name none.

    Raises:
        RefusedError: it is none.
    """
    if REGION not in parameters:
        return None
    region = parameters[REGION]
    if not isinstance(region, str) or not region:
        raise RefusedError(f"{where}: Unable to parse '{REGION}': found {brief(region)}, expected a name")
    size = read_bytes(parameters, _SIZE, where)
    if size is None:
        raise RefusedError(f"{where}: '{REGION}' needs '{_SIZE}'")
    return Place(region=region, size=size, offset=read_bytes(parameters, _OFFSET, where) or 0)


def read_bytes(parameters: Mapping[str, Any], key: str, where: str) -> int | None:
    """A number of bytes; None where it is not given.

    Raises:
        RefusedError: it is something else.
    """
    value = parameters.get(key)
    if value is not None and (type(value) is not int or not 0 <= value < 2**63):
        raise RefusedError(f"{where}: Unable to parse '{key}': found {brief(value)}, expected a whole number")
    return value
