"""How long a client wants to wait for its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.errors import InvalidRequestError
from app.wording import cut

HEADER: Final = "X-Request-Timeout-Ms"
_NAME: Final = HEADER.lower().encode()
_NUMBER: Final = re.compile(r"\d{1,12}(\.\d{1,6})?")


def read_limit(headers: Mapping[bytes, bytes]) -> float | None:
    """Seconds, from the first header of each name; None where it says nothing.

    Raises:
        InvalidRequestError: it is no number of milliseconds, or none that is left.
    """
    given = headers.get(_NAME)
    return None if given is None else limit_of(given)


def limit_of(given: bytes) -> float:
    """Seconds, as the header's value says.

    Raises:
        InvalidRequestError: as ``read_limit`` says.
    """
    text = given.decode("latin-1").strip()
    if not _NUMBER.fullmatch(text) or float(text) == 0:
        raise InvalidRequestError(f"{HEADER}: found '{cut(text)}', expected milliseconds, more than 0")
    return float(text) / 1e3
