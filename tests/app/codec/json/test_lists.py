"""Large tensors in JSON, with the extra [fast] and without: the same values, the same errors, the same limits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from app.codec.json import lists
from app.codec.json.body import parse_json_body
from app.codec.json.lists import Numbers, cut_lists
from app.codec.json.text import parse_json, parse_request_json
from app.errors import ServiceError
from app.protocol.v2.request import parse_request
from app.settings import Settings
from app.signature import Signature

pytest.importorskip("simdjson")

SETTINGS = Settings(max_json_depth=8)
DTYPES = ["float32", "float64", "float16", "int64", "uint8", "bool", "complex64"]

numbers = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, -0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
)
others = st.one_of(st.none(), st.booleans(), st.sampled_from(["NaN", "", 'x"y', "[1,"]), st.just([]), st.just({}))


def spelt(value: Any, draw: Any) -> str:
    """JSON with blanks here and there."""
    text = json.dumps(value, separators=draw(st.sampled_from([(",", ":"), (", ", ": "), ("\n,\t", "\r:\n")])))
    return text if draw(st.booleans()) else text.replace("[", "[ ").replace("]", "\n]").replace("}", " }")


@st.composite
def tensors(draw: Any) -> Any:
    """Evenly nested lists of numbers, mostly."""
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
    """Bodies, some of them no JSON or with a key twice."""
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
        picture_input=None,
    )
    for dtype in DTYPES
}


def outcome(body: bytes, dtype: str) -> Any:
    try:
        return parse_json_body(body, SETTINGS).decode(SIGNATURE[dtype])
    except ServiceError as error:
        return type(error), error.body()


def same(a: Any, b: Any) -> None:
    if not isinstance(a, dict):
        assert a == b
        return
    assert a.keys() == b.keys()
    for name, array in a.items():
        assert array.dtype == b[name].dtype
        assert array.tobytes() == b[name].tobytes()
        assert array.shape == b[name].shape


@given(texts(), st.sampled_from(DTYPES), st.sampled_from([1 << 14, 64]))
def test_bodies_mean_the_same_with_and_without_the_extra(body: bytes, dtype: str, around: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "_LEAST", 1)
        patch.setattr(lists, "_MAX_AROUND", around)
        fast = outcome(body, dtype)
        patch.setattr(lists, "_LEAST", 1 << 60)
        same(fast, outcome(body, dtype))


def large(shape: tuple[int, ...] = (3, 64, 64)) -> tuple[np.ndarray, bytes]:
    x = np.random.default_rng(0).standard_normal(shape)
    return x, json.dumps(x.tolist()).encode()


@pytest.mark.parametrize(
    "around",
    [
        b'{"inputs": %s}',
        b'{"model": "a", "inputs": {"in0": %s}, "outputs": ["b"]}',
        b'{"inputs": {"in0": {"shape": [3, 64, 64], "data": %s, "dtype": "float32"}}, "version": 1}',
        b' {"inputs" :[{"name":"in0","datatype":"FP32","shape":[3,64,64],"data" : %s } ] , "id":"x"} ',
    ],
)
def test_tensors_are_found_where_requests_have_them(around: bytes) -> None:
    x, text = large()
    value = parse_request_json(around % text, max_depth=8)["inputs"]
    found = value if isinstance(value, Numbers) else next(iter(value.values() if isinstance(value, dict) else value))
    found = found["data"] if isinstance(found, dict) else found
    assert isinstance(found, Numbers)
    assert found.shape == x.shape
    array = found.read(np.dtype(np.float64))
    assert array is not None
    assert array.tobytes() == x.tobytes()
    assert found.plain() == x.tolist()


def test_two_tensors_of_one_request_are_both_found() -> None:
    (a, first), (b, second) = large((40, 40)), large((2000,))
    inputs = parse_request_json(b'{"inputs": {"a": %s, "b": %s}}' % (first, second), max_depth=8)["inputs"]
    assert {name: found.shape for name, found in inputs.items()} == {"a": a.shape, "b": b.shape}


@pytest.mark.parametrize(
    "body",
    [
        b'{"parameters": {"a": %s}, "inputs": 1}',
        b'{"inputs": {"shape": %s}}',
        b'{"inputs": %s, "outputs": "\\""}',
        b'{"x": "\\", \\"inputs\\": %s"}',
        b"[%s]",
    ],
)
def test_lists_elsewhere_are_lists(body: bytes) -> None:
    _, text = large()
    assert parse_request_json(body % text, max_depth=8) == parse_json(body % text, max_depth=8)


def test_a_list_within_the_numbers_is_no_tensor() -> None:
    row = json.dumps([1] * 3000).encode()
    uneven = b"[[1,[2]%s,[3,[4]%s]" % (row[2:], row[2:])
    body = b'{"inputs": %s}' % uneven
    assert parse_request_json(body, max_depth=8) == json.loads(body)


def test_the_measure_of_a_cut_text_is_that_of_the_whole() -> None:
    _, text = large()
    body = b'{"inputs": {"in0": %s}}' % text
    cut = cut_lists(body)
    assert cut is not None
    whole, found = lists.measure(body), cut.measure(0)
    assert found.depth == whole.depth
    # Strings are charged with the text they are in, the mark is one more.
    assert abs(found.parsed_bytes - (whole.parsed_bytes - len(body))) < 1000


def test_a_short_flat_list_of_the_other_protocol_is_told_so_in_its_words() -> None:
    from app.protocol.v2.inputs import _check_filled

    text = json.dumps([0.5] * 3000).encode()
    body = b'{"inputs": [{"name": "x", "shape": [1, 2999], "datatype": "FP32", "data": %s}]}' % text
    (sent,) = parse_request(body, len(body), SETTINGS).inputs or ()
    assert isinstance(sent.data, Numbers)
    with pytest.raises(ServiceError, match="found 3000 values, expected 2999"):
        _check_filled(sent.data, sent.shape, _Port())  # type: ignore[arg-type]


class _Port:
    name = "x"
