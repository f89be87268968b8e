"""Reading and writing of .npy and .npz, without numpy's reader, which copies and evaluates the header as Python.

The layout is numpy's NEP 1: magic, version, header length, a dict as text, then the values. Arrays are views of the
body, also stored members of an archive. Compressed members are decompressed only if all of them fit the body limit
together, and never beyond the size that each declares. The standard library reads the directory of an archive, whose
length is bounded, because it makes an object of every entry.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from app.arrays import as_fixed, is_text
from app.codec.message import Message
from app.errors import InvalidRequestError, RequestTooLargeError
from app.memory.reservation import charge, check
from app.messages import cut
from app.settings import Settings
from app.signature import Inputs, Signature

NPY_MAGIC: Final = b"\x93NUMPY"
ZIP_MAGIC: Final = b"PK\x03\x04"

_BFLOAT16: Final[np.dtype[Any]] = np.dtype(ml_dtypes.bfloat16)
_DESCR: Final = re.compile(r"'descr'\s*+:\s*+'([<>|=]?[a-zA-Z][0-9]{1,4})'")
_ORDER: Final = re.compile(r"'fortran_order'\s*+:\s*+(True|False)")
_SHAPE: Final = re.compile(r"'shape'\s*+:\s*+\(([0-9\s,]*+)\)")
_MAX_HEADER: Final = 10_000
_MAX_MEMBERS: Final = 256
_MAX_RANK: Final = 32
_MAX_DIGITS: Final = 18
# Fixed part of the header before a member's bytes, and the error of reading a damaged archive.
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_DAMAGED: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    RuntimeError,
)
# Most bytes that are read at once: more than the directory of an archive with the most members takes.
_MOST_READ: Final = 1 << 17
_PIECE: Final = 1 << 16
# Largest integer in a JSON answer.
_MOST: Final = 2**63 - 1


def read_npy(body: bytes | bytearray | memoryview, settings: Settings, where: str = "the .npy body") -> NDArray[Any]:
    """Return the array of an .npy file as a view of the body; a foreign byte order is converted.

    Raises:
        InvalidRequestError: not an .npy file, truncated, too long, or not of a numeric dtype.
        RequestTooLargeError: too many elements.
    """
    dtype, fortran, shape, start = _header(body, where)
    count = math.prod(shape)
    if math.prod(dim for dim in shape if dim) > settings.max_elements:
        raise RequestTooLargeError(
            f"{where} has too many elements: found {count} for shape {list(shape)}, expected at most"
            f" {settings.max_elements}",
            found=count,
            limit=settings.max_elements,
        )
    if len(body) - start != count * dtype.itemsize:
        raise InvalidRequestError(
            f"{where} does not match its shape: found {len(body) - start} bytes of values, expected"
            f" {count * dtype.itemsize} for {list(shape)} {dtype.name}"
        )
    flat = np.frombuffer(body, dtype, count, start)
    array = flat.reshape(shape, order="F" if fortran else "C")
    if not dtype.isnative or not array.flags.c_contiguous:
        charge(array.nbytes)  # for the copy, made here or by the run
    return array.astype(dtype.newbyteorder("="), copy=False)


def read_npz(body: bytes | bytearray | memoryview, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name.

    Raises:
        InvalidRequestError: not an archive of .npy files, damaged, or compressed with another method.
        RequestTooLargeError: over the body limit when decompressed.
    """
    view = memoryview(body)
    try:
        with zipfile.ZipFile(_File(view)) as archive:
            found = archive.infolist()
            _check_members(found, settings)
            charge(sum(member.file_size for member in found if member.compress_type == zipfile.ZIP_DEFLATED))
            return {
                member.filename.removesuffix(".npy"): read_npy(
                    _unpack(archive, member, view), settings, f"'{cut(member.filename)}' of the .npz body"
                )
                for member in found
            }
    except _DAMAGED as exc:
        raise InvalidRequestError(f"the .npz body is damaged or not an .npz file: {cut(str(exc), 300)}") from None


class _File(io.RawIOBase):
    """File over a view, of which only small parts are copied."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, len(self._view))[whence]
        if at < 0:
            raise OSError("the archive is truncated")
        self._at = at
        return at

    def readinto(self, room: Any) -> int:
        if len(room) > _MOST_READ:
            raise zipfile.BadZipFile("the archive's directory is too long")
        data = self._view[self._at : self._at + len(room)]
        room[: len(data)] = data
        self._at += len(data)
        return len(data)


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, view: memoryview) -> memoryview:
    """Return the bytes of a member: a view if stored, otherwise decompressed, never more than declared.

    Raises:
        zipfile.BadZipFile, RuntimeError: it is damaged or encrypted.
        DeadlineExceededError: the request was cancelled.
    """
    if member.compress_type == zipfile.ZIP_STORED:
        magic, *_, name_length, extra_length = _LOCAL.unpack_from(view, member.header_offset)
        start = member.header_offset + _LOCAL.size + name_length + extra_length
        data = view[start : start + member.file_size]
        is_whole = magic == ZIP_MAGIC and not member.flag_bits & 1 and len(data) == member.compress_size
        if not is_whole or zlib.crc32(data) != member.CRC:
            raise zipfile.BadZipFile(f"'{member.filename}' does not match its checksum")
        return data
    room, filled = np.empty(member.file_size, np.uint8).data, 0
    with archive.open(member) as file:
        while piece := file.read(_PIECE):
            check()
            room[filled : filled + len(piece)] = piece
            filled += len(piece)
    if filled < member.file_size:
        raise zipfile.BadZipFile(f"'{member.filename}' is shorter than its declared size")
    return room


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return an uncompressed .npz file; bfloat16, which numpy cannot load, is converted to float32."""
    charge(3 * sum(array.nbytes for array in arrays.values()))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # np.savez does not take an array named "file"
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                for piece in write_npy(array):
                    member.write(piece)
    return buffer.getvalue()


def write_npy(array: NDArray[Any]) -> list[bytes]:
    """Return an .npy file in pieces, without copying the values; bfloat16 is converted to float32."""
    array = np.asarray(portable(array), order="C")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    values = array.reshape(-1).view(np.uint8).data if array.size else b""
    return [head.getvalue(), values]  # type: ignore[list-item]  # bytes-like


def portable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in a dtype of plain numpy."""
    if is_text(array.dtype):
        return as_fixed(array)
    return array.astype(np.float32) if array.dtype == _BFLOAT16 else array


def _header(body: bytes | bytearray | memoryview, where: str) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    view = memoryview(body)
    if bytes(view[:6]) != NPY_MAGIC or len(view) < 12:
        raise InvalidRequestError(f"{where} does not begin with the magic bytes of an .npy file")
    wide = view[6] != 1  # version 1 has a length of two bytes, 2 and 3 of four
    start = 12 if wide else 10
    length = int.from_bytes(view[8:start], "little")
    if length > _MAX_HEADER or len(view) < start + length:
        raise InvalidRequestError(f"{where} has a header of {length} bytes, expected one within the file")
    text = bytes(view[start : start + length]).decode("latin-1")
    descr, order, shape = _DESCR.search(text), _ORDER.search(text), _SHAPE.search(text)
    if descr is None or order is None or shape is None:
        raise InvalidRequestError(f"{where} has an invalid header, expected 'descr', 'fortran_order' and 'shape'")
    return _dtype(descr[1], where), order[1] == "True", _shape(shape[1], where), start + length


def _shape(text: str, where: str) -> tuple[int, ...]:
    dims = [dim.strip() for dim in text.split(",") if dim.strip()]
    if len(dims) > _MAX_RANK or any(len(dim) > _MAX_DIGITS or not dim.isdigit() for dim in dims):
        raise InvalidRequestError(f"{where} has an invalid shape, expected at most {_MAX_RANK} whole numbers")
    return tuple(map(int, dims))


def _dtype(descr: str, where: str) -> np.dtype[Any]:
    if descr.lstrip("|<") == "V2":  # numpy's name of ml_dtypes.bfloat16
        return _BFLOAT16
    try:
        dtype = np.dtype(descr)
    except TypeError:
        dtype = np.dtype(np.void)
    if dtype.kind not in "biufc":
        raise InvalidRequestError(f"{where} has dtype '{descr}', expected numbers")
    return dtype


def _check_members(found: list[zipfile.ZipInfo], settings: Settings) -> None:
    unpacked = sum(member.file_size for member in found)
    if unpacked > settings.max_body_bytes or len(found) > _MAX_MEMBERS:
        raise RequestTooLargeError(
            f"the decompressed .npz body is too large: found {unpacked} bytes in {len(found)} arrays, expected at most"
            f" {settings.max_body_bytes} bytes in {_MAX_MEMBERS}",
            found=min(unpacked, _MOST),
            limit=settings.max_body_bytes,
        )
    names = [member.filename for member in found]
    if len(set(names)) != len(names):
        raise InvalidRequestError("the .npz body has two arrays of the same name, expected each name once")
    for member in found:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InvalidRequestError(
                f"'{cut(member.filename)}' of the .npz body: found compression method {member.compress_type},"
                " expected 0 or 8"
            )


def npy_message(body: bytes | bytearray, settings: Settings) -> Message:
    """Return the message of an .npy body: one array for the only input."""
    return Message(decode=lambda signature: {signature.only_input().name: read_npy(body, settings)})


def npz_message(body: bytes | bytearray, settings: Settings) -> Message:
    """Return the message of an .npz body: arrays by input name; a single array for the only input may have any name."""
    return Message(decode=lambda signature: named(read_npz(body, settings), signature))


def named(arrays: Mapping[str, NDArray[Any]], signature: Signature) -> Inputs:
    """Return the arrays of an archive as inputs."""
    if len(arrays) == len(signature.requested) == 1:
        return {signature.requested[0].name: next(iter(arrays.values()))}
    return {port.name: arrays[name] for name, port in signature.matched(arrays).items()}
