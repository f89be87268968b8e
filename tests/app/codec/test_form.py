"""Tests of forms, written by httpx so that the parser is not tested against itself."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from app.codec.form import parse_form, split_parts
from app.codec.message import Message
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError, ServiceError
from app.images.decode import Picture
from app.settings import Settings
from app.signature import Signature
from tests.app.pictures import npy, npz

X = np.float32([[1, 2]])
PORTS = tuple(engine.Port(name=f"in{i}", operand=str(i), spec=None) for i in range(2))
ONE = Signature(inputs=PORTS[:1], outputs=(), contents={"in0": "picture"})
TWO = Signature(inputs=PORTS, outputs=(), contents={"in1": "picture"})


def form(files: list[tuple[str, tuple[str, bytes]]], **fields: str) -> tuple[bytes, str]:
    request = httpx.Request("POST", "http://x", files=files, data=fields)
    return request.read(), request.headers["content-type"]


def parsed(files: list[tuple[str, tuple[str, bytes]]], **fields: str) -> Message:
    return parse_form(*form(files, **fields), Settings())


def test_pictures_are_a_batch_in_the_order_sent() -> None:
    message = parsed([("file", ("a.png", b"first")), ("file", ("b.png", b"second"))])
    expected = (Picture(data=bytearray(b"first"), label="picture 1 ('a.png')"),
                Picture(data=bytearray(b"second"), label="picture 2 ('b.png')"))  # fmt: skip
    assert message.decode(ONE) == {"in0": expected}


def test_arrays_are_inputs_by_their_fields_name() -> None:
    found = parsed([("in0", ("x", npy(X))), ("in1", ("y", npy(X[0])))]).decode(TWO)
    np.testing.assert_equal(found, {"in0": X, "in1": X[0]})


def test_an_archive_is_inputs_by_its_own_names() -> None:
    np.testing.assert_equal(parsed([("file", ("x.npz", npz(in0=X, in1=X[0])))]).decode(TWO), {"in0": X, "in1": X[0]})


def test_the_only_array_of_the_only_input_needs_no_name() -> None:
    np.testing.assert_equal(parsed([("whatever", ("x.npy", npy(X)))]).decode(ONE), {"in0": X})


def test_a_picture_and_an_array_can_be_sent_together() -> None:
    found = parsed([("in0", ("x.npy", npy(X))), ("in1", ("a.png", b"picture"))]).decode(TWO)
    assert set(found) == {"in0", "in1"}


@pytest.mark.parametrize("field", ["mask", "in0"])
def test_a_field_named_as_an_input_that_takes_no_pictures_is_refused(field: str) -> None:
    mask = engine.Port(name="mask", operand="0", spec=None, aliases=("in0",))
    image = engine.Port(name="image", operand="1", spec=None, aliases=("in1",))
    both = Signature(inputs=(mask, image), outputs=(), contents={"image": "picture"})
    assert set(parsed([("in1", ("a.png", b"picture"))]).decode(both)) == {"image"}
    with pytest.raises(InputMismatchError, match="input 'mask' takes no pictures"):
        parsed([(field, ("a.png", b"picture"))]).decode(both)


def test_plain_fields_say_what_json_keys_say() -> None:
    message = parsed([("f", ("a", b"x"))], model="m", version="2", outputs="out0, out1", parameters='{"top_k": 3}')
    assert (message.model, message.version, message.outputs) == ("m", 2, ("out0", "out1"))
    assert message.parameters == {"top_k": 3}


@pytest.mark.parametrize(
    ("disposition", "name", "file_name"),
    [
        ("name=\"image\"; filename*=UTF-8''%C3%A4.png", "image", "ä.png"),
        ("name=\"image\"; filename*=utf-8'de'%C3%A4.png", "image", "ä.png"),
        ("name=\"image\"; filename*=iso-8859-1''%E4.png", "image", "ä.png"),
        ("name=image; filename=\"a.png\"; filename*=UTF-8''%C3%A4.png", "image", "ä.png"),
        ('name=image; filename*="a.png"', "image", "a.png"),
        ("name=image; filename*=UTF-8''", "image", ""),
        ("name*=UTF-8''im%61ge; filename=\"a.png\"", "image", "a.png"),
        ('name=image; filename*0="long"; filename*1="er.png"', "image", "longer.png"),
        ("name=image; filename*0*=UTF-8''%C3; filename*1*=%A4; filename*2=\".png\"", "image", "ä.png"),
        ('name=image; filename*1="er.png"', "image", None),
        ("name=image", "image", None),
    ],
)
def test_names_of_parts_are_read_in_every_form(disposition: str, name: str, file_name: str | None) -> None:
    body = f"--q\r\nContent-Disposition: form-data; {disposition}\r\n\r\nbytes\r\n--q--\r\n".encode()
    (part,) = split_parts(body, "multipart/form-data; boundary=q")
    assert (part.name, part.file_name, bytes(part.data)) == (name, file_name, b"bytes")


@given(st.lists(st.tuples(st.text("ab", min_size=1), st.binary()), min_size=1, max_size=4))
def test_every_byte_of_every_part_arrives(parts: list[tuple[str, bytes]]) -> None:
    body, content_type = form([(name, ("file", data)) for name, data in parts])
    assert [(part.name, bytes(part.data)) for part in split_parts(body, content_type)] == parts


@pytest.mark.parametrize(
    ("files", "fields", "error", "message"),
    [
        ([], {"model": "m"}, InvalidRequestError, "the form"),
        ([("f", ("a", b"x"))], {"modle": "m"}, InvalidRequestError, "unknown field 'modle', expected 'model', "),
        ([("f", ("a", b"x"))], {"version": "0"}, InvalidRequestError, "version: found '0', expected a whole"),
        ([("f", ("a", b"x"))], {"parameters": "[]"}, InvalidRequestError, "the field 'parameters': expected a JSON"),
        ([("f", ("a", b"x"))] * 257, {}, RequestTooLargeError, "the form has too many parts, expected at most 256"),
    ],
)
def test_forms_that_say_nothing_useful_are_refused(
    files: list[tuple[str, tuple[str, bytes]]], fields: dict[str, str], error: type[ServiceError], message: str
) -> None:
    with pytest.raises(error, match=message):
        parse_form(*form(files or [("model", (None, b"m"))], **fields), Settings())  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("in0", ("x", npy(X))), ("in0", ("x", npy(X)))], "input 'in0' is given twice"),
        ([("in7", ("x", npy(X)))], "unknown input: found 'in7', expected 'in0', 'in1'"),
        ([("in0", ("a.png", b"picture"))], "input 'in0' takes no pictures"),
    ],
)
def test_files_that_fit_no_input_are_refused(files: list[tuple[str, tuple[str, bytes]]], message: str) -> None:
    with pytest.raises(InputMismatchError, match=message):
        parsed(files).decode(TWO)


@pytest.mark.parametrize("cut", [5, 10, 60])
def test_a_form_that_ends_early_is_refused(cut: int) -> None:
    body, content_type = form([("f", ("a.png", b"picture"))])
    with pytest.raises(InvalidRequestError, match="the form"):
        split_parts(body[:-cut], content_type)


def test_a_form_without_a_boundary_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="found no boundary"):
        split_parts(b"--x\r\n", "multipart/form-data")


@given(st.binary(max_size=200))
def test_arbitrary_bodies_are_refused_in_words(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        split_parts(body, "multipart/form-data; boundary=x")


@pytest.mark.parametrize("field", ["model", "version", "outputs", "parameters"])
def test_a_plain_field_is_short(field: str) -> None:
    with pytest.raises(RequestTooLargeError, match=f"the field '{field}' is too long"):
        parsed([("file", ("a.png", b"x"))], **{field: "[" * 70_000})


def test_lines_that_only_begin_as_the_boundary_are_bounded() -> None:
    body = b'--B\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n' + b"\r\n--Bx" * 2000 + b"\r\n--B--"
    with pytest.raises(InvalidRequestError, match="its boundary occurs within its parts"):
        split_parts(body, "multipart/form-data; boundary=B")
