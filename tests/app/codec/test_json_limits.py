"""Tests of the limits of long JSON texts."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codec import json_lists as limits
from app.codec import json_tensors as tensors
from app.codec.json_body import parse_json, parse_json_body, parse_request_json
from app.errors import InvalidRequestError, RequestTooLargeError
from app.settings import Settings

LONG = 1 << 18


def body_of(unit: bytes, count: int) -> bytes:
    return b'{"inputs":[' + b",".join([unit] * count) + b"]" + b" " * LONG + b"}"


@pytest.mark.parametrize(
    "unit, each, limit, what",
    [
        (b"[]", 1, limits.MAX_LISTS, "lists"),
        (b'"[]"', 1, limits.MAX_LISTS, "lists"),
        (b'""', 1, limits.MAX_STRINGS, "strings"),
        (b'"\\\\"', 2, limits.MAX_ESCAPES, "escapes"),
    ],
)
def test_lists_strings_and_escapes_are_counted_before_anything_is_parsed(
    unit: bytes, each: int, limit: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.codec.json_body.orjson.loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(RequestTooLargeError, match=f"too many {what}: found .*send tensors as .npy"):
        parse_json(body_of(unit, limit // each + 2))


def test_values_that_are_not_a_tensor_are_counted() -> None:
    text = b'{"parameters": {"a": [%s1]}}' % (b"1," * limits.MAX_VALUES)
    with pytest.raises(
        RequestTooLargeError, match="too many values beside evenly nested lists of numbers and base64: found"
    ):
        parse_json(text)


def test_as_many_as_there_may_be_are_read() -> None:
    for unit, count in ((b"[]", limits.MAX_LISTS - 1), (b'""', limits.MAX_STRINGS - 1)):
        assert len(parse_json(body_of(unit, count))["inputs"]) == count


@given(st.binary(max_size=60), st.integers(0, 80), st.sampled_from(["", "=", "A", "\n", "é", "=="]))
@example(b"\0" * 12, 4, "=")
def test_base64_in_pieces_is_that_of_the_whole(data: bytes, at: int, noise: str) -> None:
    text = base64.b64encode(data).decode()
    text = text[: at % (len(text) + 1)] + noise + text[at % (len(text) + 1) :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "_PIECE", 8)
        try:
            expected = base64.b64decode(text, validate=True)
        except ValueError:
            expected = None
        if expected is None or (len(text) > 8 and len(text) % 4):  # Python takes a sign of padding too many
            with pytest.raises(ValueError):
                tensors._decoded(memoryview(text.encode()))
        else:
            assert tensors._decoded(memoryview(text.encode())) == expected


@pytest.mark.parametrize(
    "document, said",
    [
        ({"inputs": 1, "model": "m" * 10_001}, "model: found 10,001 characters, expected at most 10,000"),
        ({"inputs": 1, "outputs": ["o" * 10_001]}, "outputs: found a name of 10,001 characters"),
        ({"inputs": 1, "outputs": ["o"] * 2000}, "outputs: found 2000 names, expected at most 1000"),
    ],
)
def test_names_are_short_and_few(document: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        parse_json_body(json.dumps(document).encode(), Settings())


def test_a_picture_of_any_length_is_no_long_value() -> None:
    text = base64.b64encode(np.random.default_rng(0).bytes(6 << 20)).decode()
    document = parse_request_json(json.dumps({"inputs": {"image": text}, "model": "a"}).encode())
    assert bytes(document["inputs"]["image"]).decode() == text


@pytest.mark.parametrize("text", ["a" * 70_000, "é" * 40_000, 'a"' * 40_000, "a\\" * 40_000, "a\t" * 40_000])
def test_a_long_string_is_what_was_sent(text: str) -> None:
    document = {"inputs": {"in0": {"data": [text, "b"]}}, "parameters": {text: text}}
    for ascii in (True, False):
        assert parse_request_json(json.dumps(document, ensure_ascii=ascii).encode()) == document


def test_a_long_string_that_is_not_plain_is_refused() -> None:
    text = json.dumps({"inputs": {"in0": "é" * (limits.MAX_BYTES // 2)}}, ensure_ascii=False)
    with pytest.raises(RequestTooLargeError, match="too many bytes beside evenly nested lists of numbers and base64"):
        parse_request_json(text.encode())
