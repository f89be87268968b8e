"""Tests of JSON parsing: refusals and their messages."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codec import json_lists as limits
from app.codec.json_body import parse_json
from app.codec.json_lists import check_parsed, count
from app.codec.json_lists import depth as measured
from app.errors import InvalidRequestError, RequestTooLargeError

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(alphabet='a"\\[]{}é\n/'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='k"]{', max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(TREES, st.sampled_from([None, 2]), st.booleans())
def test_nesting_is_measured_as_a_parser_would(tree: object, indent: int | None, ascii: bool) -> None:
    assert measured(json.dumps(tree, indent=indent, ensure_ascii=ascii).encode()) == depth(tree)


def counted(value: object) -> tuple[int, int, int, int]:
    """Return the numbers of values, lists, objects and strings in a document, keys included."""
    if isinstance(value, dict):
        inside, own = [*value.values()], (1, 0, 1, len(value))
    elif isinstance(value, list):
        inside, own = value, (1, 1, 0, 0)
    else:
        inside, own = [], (1, 0, 0, int(isinstance(value, str)))
    a, b, c, d = (sum(column) for column in zip(own, *map(counted, inside), strict=True))
    return a, b, c, d


@given(TREES, st.booleans())
def test_no_less_is_charged_than_is_made(tree: object, ascii: bool) -> None:
    charged: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "charge", charged.append)
        check_parsed(json.dumps(tree, ensure_ascii=ascii).encode())
    values, lists, objects, strings = counted(tree)
    least = (values - objects) * limits._VALUE_BYTES + lists * limits._LIST + objects * limits._OBJECT
    assert sum(charged) >= least + strings * limits._STRING - limits._VALUE_BYTES * (lists + objects)


@pytest.mark.parametrize("every", [1, 7, 5000, 10**6])
def test_bytes_are_counted_as_python_does(every: int) -> None:
    body = bytearray(b"x") * 300_000
    body[::every] = b"[" * len(body[::every])
    assert count(memoryview(body), b"[") == body.count(b"[")


@given(TREES)
def test_values_are_those_of_the_standard_library(tree: object) -> None:
    text = json.dumps(tree).encode()
    assert parse_json(text) == json.loads(text)


@given(st.binary())
def test_arbitrary_bytes_are_parsed_or_refused(body: bytes) -> None:
    with suppress(InvalidRequestError):
        parse_json(body)


def test_nesting_at_the_limit_is_taken_and_beyond_it_refused() -> None:
    deepest = b"[" * 32 + b"1" + b"]" * 32
    assert parse_json(deepest) == json.loads(deepest)
    with pytest.raises(InvalidRequestError, match="nested too deep: found 33 levels, expected at most 32"):
        parse_json(b"[%b]" % deepest)


def test_many_brackets_are_refused_without_being_parsed() -> None:
    with pytest.raises(InvalidRequestError, match="found 130000 levels"):
        parse_json(b"[" * 130_000)
    with pytest.raises(RequestTooLargeError, match="found 1,000,000, expected at most 131,072"):
        parse_json(b"[" * 1_000_000)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "nan", "-inf"])
def test_numbers_json_has_not_are_named(token: str) -> None:
    with pytest.raises(InvalidRequestError, match='line 1 column [23] has NaN or Infinity.*write "NaN"'):
        parse_json(f"[{token}]".encode())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON: .*line 1 column"),
        (b'{"a": 1,}', "the body is not JSON: "),
        (b"[1 2]", "the body is not JSON: "),
        (b"\xff\xfe{}", "the body is not JSON: "),
        (b"[1e999]", "the body is not JSON: "),
    ],
)
def test_text_that_is_not_json_is_refused_with_its_place(body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_json(body)
