"""Groups of requests that a key may be good for."""

from __future__ import annotations

from enum import StrEnum


class Group(StrEnum):
    """What a request is for."""

    INFER = "infer"  # runs of models
    METADATA = "metadata"  # what is served, how it looks, and how it does; the pages for people
    ADMIN = "admin"  # what changes the server
    METRICS = "metrics"  # figures for a monitor
