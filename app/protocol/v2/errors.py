"""Refusals of the protocol's own."""

from __future__ import annotations

from app.errors import InvalidRequestError


class RefusedError(InvalidRequestError):
    """A request that says something the protocol or the model does not take."""
