"""Values of several parameters together: every two of them meet, and all of them in `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, product

import pytest
from allpairspy import AllPairs

from tests.nightly import IS_NIGHTLY


def together(*axes: tuple[str, Iterable[object]]) -> pytest.MarkDecorator:
    """Parametrize a test with combinations of values, each axis given as to ``pytest.mark.parametrize``.

    What fails for one value, or where two meet, fails in an ordinary run; what fails only where three meet, in
    `make nightly`, which tries each with each.
    """
    names = ",".join(names for names, _ in axes)
    columns = [[_by_name(names, value) for value in values] for names, values in axes]
    places = [range(len(column)) for column in columns]
    rows = product(*places) if IS_NIGHTLY else AllPairs(places)
    taken = [[column[place] for column, place in zip(columns, row, strict=True)] for row in rows]
    return pytest.mark.parametrize(names, [[*chain.from_iterable(parts)] for parts in taken], ids=_id)


def _by_name(names: str, value: object) -> tuple[object, ...]:
    """Return an axis's value for each of its names."""
    return value if "," in names and isinstance(value, tuple) else (value,)


def _id(value: object) -> str:
    return str(value).replace(" ", "")
