"""Ids of tests: processes that share the tests of a run must collect equal ids, whenever each of them starts."""

from __future__ import annotations

import io
import zipfile

import pytest

from tests.conftest import LONGEST_ID, pytest_make_parametrize_id


def archive(year: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(zipfile.ZipInfo("a", (year, 1, 1, 0, 0, 0)), b"")
    return buffer.getvalue()


def test_two_archives_that_differ_in_their_time_have_one_id() -> None:
    first, second = archive(2001), archive(2002)
    assert first != second
    assert pytest_make_parametrize_id(first, "body") == pytest_make_parametrize_id(second, "body") == "body"


@pytest.mark.parametrize("value", [b"x" * (LONGEST_ID + 1), b"\0", b"a\n", b"\xff", "é".encode()])
def test_bytes_that_are_long_or_not_readable_are_named_after_their_argument(value: bytes) -> None:
    assert pytest_make_parametrize_id(value, "body") == "body"


@pytest.mark.parametrize("value", [b"", b"{}", b"x" * LONGEST_ID, "é", "x" * 99, 1, None])
def test_other_values_keep_the_ids_that_pytest_gives_them(value: object) -> None:
    assert pytest_make_parametrize_id(value, "body") is None
