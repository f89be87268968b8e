"""Tests of .npy and .npz bodies, with numpy's writer as reference."""

from __future__ import annotations

import io
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.codec.answers import dump_json
from app.codec.numpy_files import read_npy, read_npz, write_npz
from app.errors import InvalidRequestError, RequestTooLargeError, ServiceError
from app.settings import Settings
from tests.app.pictures import npy, npz
from tests.engine.pnnx import build

SETTINGS = Settings(max_elements=1000, max_body_bytes=10_000)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def with_header(text: str, data: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


@given(arrays.arrays(st.sampled_from(["<f4", ">f4", "<f8", "<f2", "<i8", ">i2", "|u1", "|b1", "<c8"]),
                     arrays.array_shapes(min_dims=0, max_side=3)), st.booleans())  # fmt: skip
def test_whatever_numpy_writes_is_read(array: np.ndarray, fortran: bool) -> None:
    found = read_npy(npy(np.asfortranarray(array) if fortran else array), SETTINGS)
    np.testing.assert_array_equal(found, array)
    assert found.dtype.isnative and found.dtype == array.dtype.newbyteorder("=")


def test_the_array_is_a_view_of_the_body() -> None:
    body = bytearray(npy(X))
    assert np.shares_memory(read_npy(body, SETTINGS), np.frombuffer(body, np.uint8))


def test_stored_members_of_an_archive_are_views_of_the_body() -> None:
    body = bytearray(npz(X))
    assert np.shares_memory(read_npz(body, SETTINGS)["arr_0"], np.frombuffer(body, np.uint8))


def test_bfloat16_is_known_by_the_way_numpy_writes_it() -> None:
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(read_npy(npy(x), SETTINGS), x, strict=True)


@pytest.mark.parametrize("packed", [False, True])
def test_archives_are_read_by_name(packed: bool) -> None:
    found = read_npz(npz(first=X, second=X[0], packed=packed), SETTINGS)
    np.testing.assert_equal(found, {"first": X, "second": X[0]})


def test_written_archives_are_readable_by_numpy() -> None:
    wide = np.array([1.5], ml_dtypes.bfloat16)
    loaded = np.load(io.BytesIO(write_npz({"out0": X, "out1": wide})))
    np.testing.assert_equal(dict(loaded), {"out0": X, "out1": np.float32([1.5])})


DICT = "{'descr': %s, 'fortran_order': False, 'shape': %s, }"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "does not begin with the magic bytes of an .npy file"),
        (b"\x93NUMPY\x01\x00", "does not begin with the magic bytes of an .npy file"),
        (b"\x93NUMPX" + bytes(100), "does not begin with the magic bytes of an .npy file"),
        (npy(X)[:-1], r"found 23 bytes of values, expected 24 for \[2, 3\] float32"),
        (npy(X) + b"\0", r"found 25 bytes of values, expected 24"),
        (npy(X)[:40], "has a header of 118 bytes, expected one within the file"),
        (with_header("x" * 20_000, version=2), "has a header of 20000 bytes"),
        (with_header("{}"), "has an invalid header"),
        (with_header(DICT % ("'|O'", "(1,)"), b"12345678"), "has an invalid header"),
        (with_header(DICT % ("'|O8'", "(1,)"), b"12345678"), r"has dtype '\|O8', expected numbers"),
        (with_header(DICT % ("'<U3'", "(1,)"), bytes(12)), "has dtype '<U3', expected numbers"),
        (with_header(DICT % ("'<f3'", "(1,)"), bytes(12)), "has dtype '<f3', expected numbers"),
        (with_header(DICT % ("[('a', '<f4')]", "(1,)"), bytes(4)), "has an invalid header"),
        (with_header(DICT % ("'<f4'", "(" + "9" * 5000 + ",)")), "has an invalid shape"),
        (with_header(DICT % ("'<f4'", "(" + "1," * 40 + ")"), bytes(4)), "has an invalid shape"),
        (with_header(DICT % ("'<f4'", "(1 2,)"), bytes(4)), "has an invalid shape"),
    ],
)
def test_damaged_arrays_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_npy(body, SETTINGS)


@pytest.mark.parametrize("shape", ["(1000000000,)", "(0, 1000000000)", "(999999999999999999, 999999999999999999)"])
def test_huge_shapes_are_refused_before_anything_is_allocated(shape: str) -> None:
    with pytest.raises(RequestTooLargeError, match="too many elements"):
        read_npy(with_header(DICT % ("'<f4'", shape)), SETTINGS)


def test_an_archive_that_unpacks_to_more_than_a_body_may_hold_is_refused() -> None:
    body = npz(np.zeros(5000, np.float64), packed=True)
    assert len(body) < 1000
    with pytest.raises(RequestTooLargeError, match="found 40128 bytes in 1 arrays, expected at most 10000 bytes"):
        read_npz(body, SETTINGS)


def test_an_archive_that_lies_about_its_size_is_refused() -> None:
    body = bytearray(npz(np.zeros(500, np.float64), packed=True))
    true_size = struct.pack("<L", 128 + 4000)
    body = body.replace(true_size, struct.pack("<L", 200))
    with pytest.raises(InvalidRequestError):
        read_npz(body, SETTINGS)


def test_a_flipped_bit_in_a_stored_member_is_found() -> None:
    body = bytearray(npz(X))
    body[body.index(X.tobytes())] ^= 1
    with pytest.raises(InvalidRequestError, match="'arr_0.npy' does not match its checksum"):
        read_npz(body, SETTINGS)


def archive(name: str, data: bytes, method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"PK\x03\x04 nothing more", "the .npz body is damaged or not an .npz file"),
        (npz(X)[:-30], "the .npz body is damaged or not an .npz file"),
        (archive("a.npy", npy(X), zipfile.ZIP_BZIP2), "'a.npy' of the .npz body: found compression method"),
        (
            archive("a.txt", b"hello", zipfile.ZIP_STORED),
            "'a.txt' of the .npz body does not begin with the magic bytes of an .npy file",
        ),
    ],
)
def test_damaged_archives_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_npz(body, SETTINGS)


HUGE = (2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)


@pytest.mark.parametrize("field", ["header", "size"])
@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_numbers_of_64_bits_in_a_directory_are_refused_in_words(field: str, value: int, method: int) -> None:
    entry = build.Entry(name="a.npy", data=npy(X), method=method, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(ServiceError) as caught:
        read_npz(build.archive([entry]), SETTINGS)
    assert caught.value.status in (400, 413)
    dump_json(caught.value.body())


@given(st.data(), st.sampled_from([npy(X), npz(X), npz(X, packed=True)]))
def test_mutated_files_are_read_or_refused_in_words(data: st.DataObject, body: bytes) -> None:
    mutated = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read = read_npy if body.startswith(b"\x93") else read_npz
    try:
        read(mutated, SETTINGS)
    except ServiceError as error:
        assert error.status in (400, 413)


def test_an_array_may_have_any_name() -> None:
    arrays = {"file": X, "allow_pickle": X + 1, "a/b": X + 2}
    loaded = np.load(io.BytesIO(write_npz(arrays)))
    assert {name: loaded[name].tolist() for name in loaded.files} == {name: x.tolist() for name, x in arrays.items()}
