"""Large JSON is parsed in pieces. The oracle is the parser itself, given the whole text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import engine
from app.codec.json import numbers, pieces
from app.codec.json.body import parse_json_body
from app.codec.json.pieces import dismantle, loads_in_pieces
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError
from app.settings import Settings
from app.signature import Signature

SIGNATURE = Signature(
    inputs=(engine.Port(name="in0", operand="0", spec=engine.TensorSpec((None, None), np.dtype(np.float32))),),
    outputs=(),
)

texts = st.sampled_from(["", "a", "[,]", '{"', "\\", "é,[", "NaN", '"', "]"])
leaves = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, width=32) | texts
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=9) | st.dictionaries(texts, inner, max_size=3))
spacings = st.sampled_from([(",", ":"), (" , ", "\n:"), (",\t", " : ")])


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", 16)
        patch.setattr(pieces, "_FIRST", 5)
        patch.setattr(numbers, "_PIECE", 4)
        yield


def same(text: bytes) -> None:
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError:
        with pytest.raises(InvalidRequestError, match="is not JSON"):
            loads_in_pieces(text)
    else:
        assert repr(loads_in_pieces(text)) == repr(expected)


@given(value=values, spacing=spacings, is_ascii=st.booleans())
def test_pieces_are_what_the_whole_is(value: Any, spacing: tuple[str, str], is_ascii: bool) -> None:
    same(json.dumps(value, separators=spacing, ensure_ascii=is_ascii).encode())


@given(value=values, at=st.integers(0), byte=st.sampled_from(b'[]{},":\\ 1eN-.\n\x00\xff'), removed=st.integers(0, 2))
@example(value=[1] * 20, at=0, byte=ord(","), removed=0)
def test_what_is_no_json_is_no_json_in_pieces(value: Any, at: int, byte: int, removed: int) -> None:
    text = bytearray(json.dumps(value).encode())
    text[at % len(text) : at % len(text) + removed] = bytes([byte])
    same(bytes(text))


@pytest.mark.parametrize("comma", [5, 6, 15, 16, 17, 38, 39])
def test_a_comma_too_many_is_found_wherever_the_text_is_cut(comma: int) -> None:
    text = json.dumps([[1, 2]] * 8, separators=(",", ":")).encode()
    same(text[:comma] + b"," + text[comma:])


def test_no_piece_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0

    def spy(text: bytes) -> Any:
        nonlocal longest
        longest = max(longest, len(text))
        return orjson.loads(text)

    monkeypatch.setattr(pieces, "orjson", type("Spy", (), {"loads": spy, "JSONDecodeError": ValueError}))
    loads_in_pieces(json.dumps({"inputs": [[[1, 2, 3]] * 5000], "a": [{"b": [7] * 5000}]}).encode())
    assert longest < 40


@pytest.mark.parametrize("text", [b"{%s}" % b",".join([b'"k":1'] * 20_000), b"[{},%s1]" % (b"1," * 20_000)])
def test_keys_and_mixed_lists_are_bounded(text: bytes) -> None:
    with pytest.raises(RequestTooLargeError):
        loads_in_pieces(text)


@pytest.mark.parametrize("value", [
    [[1, 2.5]] * 30, [[*range(30)]] * 2, [[[*range(3)]] * 3] * 20, [[]] * 9, [], 5, [[1] * 9, [2] * 9],
])  # fmt: skip
def test_numbers_in_pieces_are_one_array(value: Any) -> None:
    found = numbers._numbers(value, np.dtype(np.float64))
    expected = np.array(value, np.float64)
    np.testing.assert_array_equal(found, expected)
    assert found.shape == expected.shape


@pytest.mark.parametrize("value", [
    [[1, 2]] * 9 + [[1]], [[1] * 9, [1] * 8], [1] * 9 + [[1]], [[1]] * 9 + [1], [[1] * 9, 1],
])  # fmt: skip
def test_uneven_lists_are_refused_in_pieces(value: Any) -> None:
    with pytest.raises(ValueError):
        numbers._numbers(value, np.dtype(np.float64))


def test_a_large_body_is_read_as_a_small_one_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.codec.json.text.is_parsed_at_once", lambda body, found: False)
    monkeypatch.setattr("app.codec.json.text._SMALL", 10)
    monkeypatch.setattr("app.codec.json.body._SMALL", 10)
    body = json.dumps({"inputs": [[1, "NaN"]] * 50, "outputs": ["a", "a"]}).encode()
    message = parse_json_body(body, Settings())
    assert message.outputs == ("a",)
    np.testing.assert_array_equal(message.decode(SIGNATURE)["in0"], np.array([[1, np.nan]] * 50, np.float32))
    with pytest.raises(InputMismatchError, match="unequal"):
        parse_json_body(json.dumps({"inputs": [[1, 2]] * 50 + [[1]]}).encode(), Settings()).decode(SIGNATURE)
    with pytest.raises(InvalidRequestError, match=r"near byte .* holds NaN"):
        parse_json_body(b'{"inputs": [[1, 2, NaN]]}', Settings())


@given(values)
def test_what_is_dismantled_is_empty(value: Any) -> None:
    dismantle(value)
    assert not isinstance(value, (list, dict)) or not value


@given(values)
def test_what_is_even_is_dismantled_in_steps_of_what_it_holds(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_RELEASED", 3)
        dismantle(value, is_even=True)
    assert not isinstance(value, (list, dict)) or not value
