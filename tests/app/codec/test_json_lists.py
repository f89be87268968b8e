"""Tests of long lists of numbers, with and without the extra [fast], against orjson on the whole text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from app.codec import json_lists as lists
from app.codec.json_body import parse_json, parse_json_body, parse_request_json
from app.codec.json_lists import LongList
from app.codec.json_tensors import to_array
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError, ServiceError
from app.protocol.v2.request import parse_request
from app.settings import Settings
from app.signature import Signature

SETTINGS = Settings()
DTYPES = ["float32", "float64", "float16", "int64", "uint64", "uint8", "bool", "complex64"]

numbers = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, -0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
)
others = st.one_of(st.none(), st.booleans(), st.sampled_from(["NaN", "", 'x"y', "[1,"]), st.just([]), st.just({}))


def spelt(value: Any, draw: Any) -> str:
    """Return JSON with blanks in random places."""
    text = json.dumps(value, separators=draw(st.sampled_from([(",", ":"), (", ", ": "), ("\n,\t", "\r:\n")])))
    return text if draw(st.booleans()) else text.replace("[", "[ ").replace("]", "\n]").replace("}", " }")


@st.composite
def tensors(draw: Any) -> Any:
    """Generate evenly nested lists of numbers, with exceptions."""
    kind = draw(st.sampled_from([numbers, st.integers(-300, 300), st.floats(-1e3, 1e3)]))
    value: Any = draw(st.lists(kind, min_size=1, max_size=4))
    for _ in range(draw(st.integers(0, 3))):
        value = [value] * draw(st.integers(1, 3))
    if draw(st.booleans()):
        spoilt = value = json.loads(json.dumps(value))
        while isinstance(spoilt[-1], list) and spoilt[-1] and draw(st.booleans()):
            spoilt = spoilt[draw(st.integers(-1, 0))]
        change = draw(st.sampled_from(["add", "put", "drop", "none"]))
        if change == "add":
            spoilt.append(draw(st.one_of(others, numbers, st.lists(numbers, max_size=2))))
        elif change == "put":
            spoilt[draw(st.integers(-1, 0))] = draw(st.one_of(others, numbers, st.lists(numbers, max_size=2)))
        elif change == "drop":
            spoilt.pop()
    return value


@st.composite
def texts(draw: Any) -> bytes:
    """Generate bodies, some of them invalid JSON or with a repeated key."""
    tensor = spelt(draw(tensors()), draw)
    inputs = draw(
        st.sampled_from(
            [
                "%s",
                '{"in0": %s}',
                '{"x": {"data": %s}}',
                '{"data": %s, "shape": [2, 2]}',
                '{"shape": %s, "data": [1]}',
                '{"in0": {"shape": [4], "dtype": "float32", "data": %s}}',
                '{"in0": [1], "in0": %s}',
                '{"in0": %s, "in0": [1]}',
                '[{"image": %s}]',
                '{"nothing": %s}',
                '[%s, {"data": [1]}]',
            ]
        )
    )
    before = draw(st.sampled_from(["", '"model": "m", ', '"outputs": ["a"], ', '"parameters": {"p": [1, 2]}, ']))
    behind = draw(
        st.sampled_from(["", ', "outputs": true', ', "inputs": [[1.5]]', f', "version": {tensor}', ', "é": 1'])
    )
    body = f'{{{before}"inputs": {inputs % tensor}{behind}}}'
    raw = bytearray(body.encode())
    if draw(st.booleans()):
        return bytes(raw)
    at = draw(st.integers(0, len(raw) - 1))
    raw[at : at + draw(st.integers(0, 2))] = draw(
        st.sampled_from([b"", b",", b"[", b"]", b'"', b"\\", b"NaN", b"1e999", b"\xff", b"-", b".", b"\x00", b"}"])
    )
    return bytes(raw)


SIGNATURE = {
    dtype: Signature(
        inputs=(
            engine.Port(name="in0", operand="0", spec=engine.TensorSpec((None, 3), np.dtype(dtype)), aliases=("x",)),
        ),
        outputs=(),
    )
    for dtype in DTYPES
}


def outcome(body: bytes, dtype: str) -> Any:
    try:
        return parse_json_body(body, SETTINGS).decode(SIGNATURE[dtype])
    except ServiceError as error:
        return error.status


def same(a: Any, b: Any) -> None:
    if not isinstance(a, dict) or not isinstance(b, dict):
        # Which of several faults is told depends on where the text is cut.
        assert {a, b} <= {400, 422}
        return
    assert a.keys() == b.keys()
    for name, array in a.items():
        assert array.dtype == b[name].dtype
        assert array.tobytes() == b[name].tobytes()
        assert array.shape == b[name].shape


@given(texts(), st.sampled_from(DTYPES), st.integers(8, 64), st.booleans(), st.sampled_from([0, 1 << 22]))
def test_a_list_read_apart_is_that_of_the_whole(body: bytes, dtype: str, piece: int, is_fast: bool, whole: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "_WHOLE", whole)
        patch.setattr(lists, "_LEAST", 1)
        patch.setattr(lists, "_PIECE", piece)
        patch.setattr(lists, "_MAX_NUMBER", piece)
        if not is_fast:
            patch.setattr(lists, "_simdjson", lambda: None)
        found = outcome(body, dtype)
        patch.setattr(lists, "_LEAST", 1 << 60)
        expected = outcome(body, dtype)
    if found != 413:  # a number that is longer than a piece
        same(found, expected)


def large(shape: tuple[int, ...] = (3, 64, 64)) -> tuple[np.ndarray, bytes]:
    x = np.random.default_rng(0).standard_normal(shape)
    return x, json.dumps(x.tolist()).encode()


PORT = engine.Port(name="x", operand="0", spec=None)


def read(value: LongList, dtype: Any = np.float64) -> np.ndarray:
    return to_array(value, PORT, np.dtype(dtype))


@pytest.mark.parametrize(
    "around",
    [
        b'{"inputs": %s}',
        b'{"model": "a", "inputs": {"in0": %s}, "outputs": ["b"]}',
        b'{"model": "\\"\\\\", "inputs": {"in0": %s}, "outputs": ["b"]}',
        b'{"inputs": {"in0": {"shape": [3, 64, 64], "data": %s, "dtype": "float32"}}, "version": 1}',
        b' {"inputs" :[{"name":"in0","datatype":"FP32","shape":[3,64,64],"data" : %s } ] , "id":"x"} ',
    ],
)
@pytest.mark.parametrize("is_fast", [True, False])
def test_tensors_are_found_where_requests_have_them(
    around: bytes, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_fast:
        monkeypatch.setattr(lists, "_simdjson", lambda: None)
    x, text = large()
    value = parse_request_json(around % text)["inputs"]
    found = value if isinstance(value, LongList) else next(iter(value.values() if isinstance(value, dict) else value))
    found = found["data"] if isinstance(found, dict) else found
    assert isinstance(found, LongList)
    np.testing.assert_array_equal(read(found), x, strict=True)


def test_two_tensors_of_one_request_are_both_found() -> None:
    (a, first), (b, second) = large((40, 40)), large((2000,))
    inputs = parse_request_json(b'{"inputs": {"a": %s, "b": %s}}' % (first, second))["inputs"]
    np.testing.assert_array_equal(read(inputs["a"]), a, strict=True)
    np.testing.assert_array_equal(read(inputs["b"]), b, strict=True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"parameters": {"a": %s}, "inputs": 1}',
        b'{"inputs": {"shape": %s}}',
        b'{"x": "\\", \\"inputs\\": %s"}',
        b"[%s]",
    ],
)
def test_lists_elsewhere_are_lists(body: bytes) -> None:
    _, text = large()
    assert parse_request_json(body % text) == parse_json(body % text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("[[1,2],[3]]", "lists of unequal length"),
        ("[[[1,2]],[3,4],[[5,6]]]", "lists of unequal length"),
        ("[[[1,2]],[[3,4],[5,6]]]", "lists of unequal length"),
        ("[[1],2]", "lists of unequal length"),
        ("[[1],[]]", "lists of unequal length"),
        ("[[1],[],[2]]", "lists of unequal length"),
        ("[[[1]],[[[]]],[[2]]]", "lists of unequal length"),
        ("[1,null]", "found null"),
        ("[true,1]", "found true or false"),
        ("[1,{}]", "found an object"),
        ("[1,1e300]", "out of range"),
    ],
)
def test_what_is_not_a_tensor_is_refused(values: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_LEAST", 1)
    value = parse_request_json(b'{"inputs": %s}' % values.encode())["inputs"]
    with pytest.raises(InputMismatchError, match=said):
        read(value, np.float32)


@pytest.mark.parametrize("values", ["[1,2,]", "[1,,2]", "[1 2]", "[1[2]]", "[,1]", "[1,NaN]", "[1,2,x]"])
@pytest.mark.parametrize("piece", [1 << 18, 5])
def test_what_is_not_json_is_refused(values: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("_LEAST", 1), ("_PIECE", piece), ("_MAX_NUMBER", piece)):
        monkeypatch.setattr(lists, name, limit)
    with pytest.raises(InvalidRequestError, match="not JSON"):
        read(parse_request_json(b'{"inputs": %s}' % values.encode())["inputs"])


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_piece_of_blanks_is_not_json(is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_fast:
        monkeypatch.setattr(lists, "_simdjson", lambda: None)
    # Pieces end at a comma: the second one here ends before the long number, and holds no value.
    values = b"[%b%b,1.%b,2]" % (b"1," * 131_071, b" " * 258_100, b"0" * 4060)
    with pytest.raises(InvalidRequestError, match="a comma without a value"):
        read(parse_request_json(b'{"inputs": %b}' % values)["inputs"])


def test_a_number_without_end_is_refused() -> None:
    value = parse_request_json(b'{"inputs": [1, %s]}' % (b"1" * 300_000))["inputs"]
    with pytest.raises(RequestTooLargeError, match="a number or blanks of 4,096 bytes or more"):
        read(value)


def test_no_piece_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    loads = orjson.loads

    def spy(text: bytes) -> Any:
        nonlocal longest
        longest = max(longest, len(text))
        return loads(text)

    monkeypatch.setattr(lists, "_simdjson", lambda: None)
    monkeypatch.setattr(lists.orjson, "loads", spy)
    monkeypatch.setattr(lists, "_PIECE", 1 << 13)
    _, text = large()
    read(parse_request_json(b'{"inputs": %s}' % text)["inputs"])
    assert longest <= (1 << 13) + 2


def test_a_flat_list_that_is_too_short_is_reported_in_the_words_of_the_other_protocol() -> None:
    from app.protocol.v2.inputs import _check_filled

    text = json.dumps([0.5] * 3000).encode()
    body = b'{"inputs": [{"name": "x", "shape": [1, 2999], "datatype": "FP32", "data": %s}]}' % text
    (sent,) = parse_request(body, len(body), SETTINGS).inputs or ()
    assert isinstance(sent.data, LongList)
    with pytest.raises(ServiceError, match="found 3000 values, expected 2999"):
        _check_filled(sent.data, sent.shape, _Port())  # type: ignore[arg-type]


class _Port:
    name = "x"
