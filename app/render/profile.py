"""Measured times, put where a renderer looks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def with_times(description: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The description of ``graph.describe()`` with the ``time_us`` of every operator a profile has a row for."""
    times = {row["index"]: {"time_us": row["time_us"]} for row in rows}
    operators = [{**operator, **times.get(operator["index"], {})} for operator in description["operators"]]
    return {**description, "operators": operators}
