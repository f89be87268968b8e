"""Whether a request may do what it asks for, whatever carried it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.access.groups import Group
from app.access.keys import Keys
from app.errors import ForbiddenError, ServiceError, UnauthorizedError

_NOT_HERE: Final = ForbiddenError("the server is changed from the machine itself only, or with a key")


def refusal(keys: Keys | None, group: Group, key: bytes | None, *, is_local: bool) -> ServiceError | None:
    """Why a request is refused; None for one that is let through.

    Args:
        keys: None where the server has none.
        key: what the request brings.
        is_local: whether it comes from a program on this machine.
    """
    if keys is None:
        return None if group is not Group.ADMIN or is_local else _NOT_HERE
    if key is None:
        return UnauthorizedError("a key is needed: 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")
    rights = keys.ring.rights(key)
    if rights is None:
        return UnauthorizedError("this key is not known here")
    return None if group in rights else ForbiddenError(f"this key is not good for {group}")


def read_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key that a request brings, as a bearer (RFC 6750 section 2.1) or in the other header."""
    found = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:].strip())
        if name == b"x-api-key":
            found = value
    return found
