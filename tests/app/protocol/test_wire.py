"""Tests that tensors are cut out of messages as protobuf itself parses them."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelStreamInferResponse

from app.errors import RefusedError
from app.protocol.grpc.infer import field, take_tensors


@given(st.text(max_size=300), st.lists(st.binary(max_size=300), max_size=4), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_a_message_is_its_tensors_and_the_rest(name: str, tensors: list[bytes], shape: list[int]) -> None:
    message = ModelInferRequest(model_name=name, raw_input_contents=tensors)
    message.inputs.add(name=name, shape=shape)
    rest, found = take_tensors(message.SerializeToString())
    assert [bytes(view) for view in found] == tensors
    message.ClearField("raw_input_contents")
    assert ModelInferRequest.FromString(rest) == message


@given(st.binary(max_size=40))
def test_any_bytes_are_read_as_protobuf_reads_them_or_refused(data: bytes) -> None:
    try:
        expected = ModelInferRequest.FromString(data)
    except DecodeError:
        expected = None
    try:
        rest, found = take_tensors(data)
        got = ModelInferRequest.FromString(rest)
    except (RefusedError, DecodeError):
        return  # groups of unknown fields, which protobuf skips, are not looked into
    assert expected is not None
    assert [bytes(view) for view in found] == list(expected.raw_input_contents)
    expected.ClearField("raw_input_contents")
    got.DiscardUnknownFields()
    expected.DiscardUnknownFields()
    assert got == expected


@pytest.mark.parametrize(
    "data", [b"\x3a", b"\x3a\x05ab", b"\x3a" + b"\xff" * 11, b"\xff" * 12, b"\x09123", b"\x0b\x0c"]
)
def test_what_ends_early_or_never_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match="cannot be parsed"):
        take_tensors(data)


def test_a_message_of_very_many_parts_is_refused() -> None:
    with pytest.raises(RefusedError, match="too many fields"):
        take_tensors(b"\x2a\x00" * (1 << 17))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_an_answer_in_another_message_is_that_message(size: int) -> None:
    data = b"".join(field(1, [b"a" * (size // 2), memoryview(b"a" * (size - size // 2))]))
    assert ModelStreamInferResponse.FromString(data).error_message == "a" * size
