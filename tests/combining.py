"""Values of several parameters together: every two of them meet, and all of them in `make nightly`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from allpairspy import AllPairs

from tests.nightly import IS_NIGHTLY


def together(*axes: tuple[str, Sequence[object]]) -> pytest.MarkDecorator:
    """Parametrize a test with combinations of values, each axis given as to ``pytest.mark.parametrize``.

    What fails for one value, or where two meet, fails in an ordinary run; what fails only where three meet, in
    `make nightly`, which tries each with each.
    """
    names = [name for each, _ in axes for name in each.split(",")]
    places = [range(len(values)) for _, values in axes]
    rows = product(*places) if IS_NIGHTLY else AllPairs(places)
    return pytest.mark.parametrize(names, [_taken(axes, row) for row in rows], ids=_id)


def _taken(axes: Sequence[tuple[str, Sequence[object]]], row: Sequence[int]) -> tuple[object, ...]:
    found: list[object] = []
    for (names, values), place in zip(axes, row, strict=True):
        value = values[place]
        found += value if "," in names and isinstance(value, tuple) else (value,)
    return tuple(found)


def _id(value: object) -> str:
    return str(value).replace(" ", "")
