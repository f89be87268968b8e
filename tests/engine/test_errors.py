"""Texts of errors, whatever the file that they repeat holds."""

from __future__ import annotations

import pytest

from engine.errors import ShapeError


@pytest.mark.parametrize("part", ["problem", "where", "found", "expected", "remark"])
def test_no_part_of_a_message_is_longer_than_a_reader_follows(part: str) -> None:
    given = dict.fromkeys(("problem", "where", "found", "expected"), "short") | {part: "x" * 100_000}
    error = ShapeError(given.pop("problem"), **{name: given[name] for name in ("where", "found", "expected")})
    error.remark = given.get("remark", "")
    assert len(str(error)) < 5_000
    assert "x... (100,000 characters)" in str(error)
