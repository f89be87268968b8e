"""What measuring kernels against each other came to, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.render.columns import aligned
from app.render.spelling import counted

_TITLES = ("µs", "of model's", "operator", "found fastest")


def short(tuned: Mapping[str, Mapping[str, Any]]) -> str:
    """What was tuned, short enough for the end of a line."""
    return f"{counted(len(tuned), 'operator')} tuned, {len(_changed(tuned))} otherwise than the model has it"


def table(tuned: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A row for each operator whose kernel is another than its model of cost would have taken."""
    rows = [
        (f"{each['time_us']:.1f}", f"{each['time_us'] / each['first_us']:.2f}", name, each["kernel"])
        for name, each in _changed(tuned).items()
    ]
    return [short(tuned), *(aligned([_TITLES, *rows], _TITLES[:2]) if rows else [])]


def _changed(tuned: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {name: each for name, each in tuned.items() if each["kernel"] != each["first"]}
