"""The weights file as a zip archive: both dialects are read, everything damaged is refused by its member."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable

import numpy as np
import pytest

from engine.errors import WeightsError
from engine.pnnx.archive import check_crc, read_directory, write_archive
from tests.engine.pnnx.build import EMPTY_ZIP, EMPTY_ZIP64, Entry, archive, members

CONTENTS = {"conv1.weight": b"12345678", "/l/Expand_0.data": b"", "é.data": b"abc"}
dialects = pytest.mark.parametrize("zip64", [True, False], ids=["zip64", "plain"])


def contents(data: bytes) -> dict[str, bytes]:
    return {name: data[at.offset : at.offset + at.size] for name, (at,) in read_directory(data).items()}


def message(data: bytes) -> str:
    with pytest.raises(WeightsError) as caught:
        read_directory(data)
    return str(caught.value)


def packed(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    write_archive(out, [(name, np.frombuffer(data, np.uint8)) for name, data in pairs])
    return out.getvalue()


@dialects
def test_members_are_found_in_both_dialects(zip64: bool) -> None:
    assert contents(members(CONTENTS, zip64=zip64)) == CONTENTS


@pytest.mark.parametrize("data", [EMPTY_ZIP, EMPTY_ZIP64], ids=["22 bytes", "98 bytes"])
def test_empty_archive_has_no_members(data: bytes) -> None:
    assert len(data) in (22, 98)
    assert contents(data) == {}


def test_archive_of_another_tool_is_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as other:
        for name, data in CONTENTS.items():
            other.writestr(name, data)
        other.comment = b"a comment with PK\5\6 in it, and more behind it: " + b"PK\5\6" * 9
    assert contents(out.getvalue()) == CONTENTS


def test_member_written_to_a_pipe_is_read() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    out = Pipe()
    with zipfile.ZipFile(out, "w") as other, other.open("a.w", "w") as member:
        member.write(b"1234")
    assert contents(out.getvalue()) == {"a.w": b"1234"}


def test_unknown_extra_fields_are_passed_over() -> None:
    extra = struct.pack("<2H3s", 0xD935, 3, b"\0\0\0")
    sizes = struct.pack("<2H2QQL", 1, 28, 2, 2, 0, 0)
    assert contents(
        archive([Entry(name="a.w", data=b"12", extra=extra + sizes + b"\0", local_extra=extra + sizes)])
    ) == {"a.w": b"12"}


def test_written_archive_is_sound_to_another_reader() -> None:
    with zipfile.ZipFile(io.BytesIO(packed(CONTENTS.items()))) as other:
        assert other.testzip() is None
        assert {name: other.read(name) for name in other.namelist()} == CONTENTS
        assert {info.compress_type for info in other.infolist()} == {zipfile.ZIP_STORED}


def test_written_archive_of_nothing_is_the_22_bytes() -> None:
    assert packed([]) == EMPTY_ZIP


def test_small_archives_are_written_without_zip64() -> None:
    assert b"PK\6\6" not in packed(CONTENTS.items())


@pytest.mark.parametrize("limit", [0, 3, 5, 60])
def test_what_does_not_fit_plain_records_is_written_as_zip64(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("engine.pnnx.archive.ZIP64_SIZE", limit)
    data = packed(CONTENTS.items())
    assert b"PK\6\6" in data
    assert contents(data) == CONTENTS
    with zipfile.ZipFile(io.BytesIO(data)) as other:
        assert {name: other.read(name) for name in other.namelist()} == CONTENTS


def test_many_members_are_counted_in_zip64() -> None:
    many = {f"{index}.w": b"" for index in range(70_000)}
    data = packed(many.items())
    assert b"PK\6\6" in data
    assert contents(data) == many


def test_name_too_long_for_an_archive_is_refused() -> None:
    with pytest.raises(WeightsError, match="a member's name is too long"):
        packed([("x" * 65_536, b"")])


@dialects
def test_every_truncation_is_refused(zip64: bool) -> None:
    data = members(CONTENTS, zip64=zip64)
    for end in range(len(data)):
        assert message(data[:end]).startswith(("not a zip archive", "the archive is truncated"))


ONE = [Entry(name="a.w", data=b"1234")]
PLAIN = members({"a.w": b"1234"}, zip64=False)
WIDE = members({"a.w": b"1234"})


def patched(data: bytes, at: int, patch: bytes) -> bytes:
    at = len(data) + at if at < 0 else at
    return data[:at] + patch + data[at + len(patch) :]


ARCHIVES = [
    (b"", "not a zip archive: found 0 bytes without an end record"),
    (b"\x80\4\x95 a pickle", "not a zip archive: found 12 bytes without an end record"),
    (PLAIN[:-1], "the archive is truncated: found no end record"),
    (PLAIN + b"\0", "the archive is truncated: found no end record"),
    (patched(PLAIN, -18, b"\1"), "the archive is one of several volumes"),
    (patched(PLAIN, -14, b"\2"), "the archive is one of several volumes"),
    (
        patched(PLAIN, -14, b"\2\0\2\0"),
        "the directory has a wrong size: found 2 records in 49 bytes at 37, expected all of it before byte 86",
    ),
    (
        patched(PLAIN, -6, b"\x26"),
        "the directory has a wrong size: found 1 records in 49 bytes at 38, expected all of it before byte 86",
    ),
    (patched(PLAIN, -6, b"\x24"), "the directory is damaged: found no record at byte 36, expected record 1"),
    (patched(PLAIN, -10, b"\x30"), "the directory is damaged: found a record at byte 37 that runs past its end"),
    (patched(PLAIN, -14, b"\0\0\0\0"), "the directory is damaged: found 49 bytes after its last record"),
    (patched(PLAIN, -6, b"\xff\xff\xff\xff"), "the zip64 end record is missing"),
    (patched(WIDE, -34, b"\0"), "the zip64 end record is not where its locator points: found byte 0"),
    (patched(WIDE, -94, b"\x2d"), "the zip64 end record has a wrong length: found 45, expected 44"),
    (patched(WIDE, -26, b"\2"), "the archive is one of several volumes"),
    (
        patched(WIDE, -58, b"\xff" * 8),
        "the directory has a wrong size: found 1 records in 18446744073709551615 bytes at 69, "
        "expected all of it before byte 150",
    ),
    (archive([Entry(name=b"\xff.w")]), "a member's name is not UTF-8: found \"b'\\\\xff.w'\""),
    (archive([Entry(name="../a.w")]), "a member's name would leave its folder: found '../a.w'"),
    (archive([Entry(name="a/..")]), "a member's name would leave its folder: found 'a/..'"),
    (archive([Entry(name="a\\..\\w")]), "a member's name would leave its folder: found 'a\\\\..\\\\w'"),
    (archive([Entry(name="C:\\w")]), "a member's name would leave its folder: found 'C:\\\\w'"),
    (archive([Entry(name="a\0.w")]), "a member's name would leave its folder: found 'a\\x00.w'"),
    (archive([Entry(name="a.w", extra=b"")]), "'a.w': the zip64 sizes are missing: found 0 bytes, expected 28"),
    (
        archive([Entry(name="a.w", extra=struct.pack("<2HQ", 1, 8, 0))]),
        "'a.w': the zip64 sizes are missing: found 8 bytes, expected 28",
    ),
    (archive([Entry(name="a.w", local_extra=b"")]), "'a.w': the zip64 sizes are missing: found 0 bytes, expected 16"),
    (archive([Entry(name="a.w", flags=1)]), "'a.w': the member is encrypted, expected stored bytes"),
    (archive([Entry(name="a.w", flags=0x40)]), "'a.w': the member is encrypted, expected stored bytes"),
    (
        archive([Entry(name="a.w", method=8)]),
        "'a.w': the member is compressed: found method 8, expected method 0, stored",
    ),
    (archive([Entry(name="a.w", data=b"12", packed=1)]), "'a.w': the member's sizes differ: found 1, expected 2"),
    (archive([Entry(name="a.w", disk=1)]), "'a.w': the archive is one of several volumes"),
    (
        archive([Entry(name="a.w", data=b"12", header=1)]),
        "'a.w': the member's header is not where the directory says: found byte 1",
    ),
    (
        archive([Entry(name="a.w", header=2**63)]),
        "'a.w': the member's header is not where the directory says: found byte 9223372036854775808",
    ),
    (
        archive([Entry(name="a.w", data=b"12", size=2**64 - 1, packed=2**64 - 1)]),
        "'a.w': the member runs into the directory: found bytes 65 to 18446744073709551680, expected an end before 67",
    ),
    (archive([Entry(name="a.w", local_name=b"b.w")]), "'a.w': the member's header has another name: found \"b'b.w'\""),
    (
        archive([Entry(name="a.w", local_flags=1)]),
        "'a.w': the member's header contradicts the directory in encryption: found 1, expected 0",
    ),
    (
        archive([Entry(name="a.w", local_method=8)]),
        "'a.w': the member's header contradicts the directory in method: found 8, expected 0",
    ),
    (
        archive([Entry(name="a.w", local_crc=7)]),
        "'a.w': the member's header contradicts the directory in CRC-32: found 7, expected 0",
    ),
    (
        archive([Entry(name="a.w", data=b"12", local_size=3)]),
        "'a.w': the member's header contradicts the directory in size: found 3, expected 2",
    ),
]


@pytest.mark.parametrize(("data", "text"), ARCHIVES, ids=[f"{i}-{text[:50]}" for i, (_, text) in enumerate(ARCHIVES)])
def test_damaged_archive_is_refused(data: bytes, text: str) -> None:
    assert message(data) == text


def test_members_that_overlap_are_refused() -> None:
    inner = archive([Entry(name="b.w", data=b"12")])[: 30 + 3 + 32 + 2]
    honest = archive([Entry(name="a.w", data=inner), Entry(name="b.w", data=b"12")])
    start = 30 + 3 + 32
    lying = archive([Entry(name="a.w", data=inner), Entry(name="b.w", data=b"12", header=start)])
    assert set(contents(honest)) == {"a.w", "b.w"}
    assert message(lying) == f"'b.w': two members overlap: found bytes of 'a.w' from {start}"


def test_members_of_one_name_come_in_the_order_of_the_directory() -> None:
    data = archive([Entry(name="a.w", data=b"1"), Entry(name="b.w"), Entry(name="a.w", data=b"2")])
    assert [data[at.offset : at.offset + at.size] for at in read_directory(data)["a.w"]] == [b"1", b"2"]


def test_wrong_crc_is_found_when_asked_for() -> None:
    data = archive([Entry(name="a.w", data=b"12", crc=7)])
    (member,) = read_directory(data)["a.w"]
    with pytest.raises(WeightsError) as caught:
        check_crc(data, "a.w", member)
    assert str(caught.value) == f"'a.w': wrong CRC-32: found {zlib.crc32(b'12'):08x}, expected 00000007"


@pytest.mark.parametrize("field", ["header", "size", "packed", "disk"])
@pytest.mark.parametrize("value", [2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_numbers_of_64_bits_in_the_directory_are_refused_in_words(field: str, value: int) -> None:
    value = value if field != "disk" else value % 2**32
    with pytest.raises(WeightsError):
        read_directory(archive([Entry(name="a", data=b"1234", **{field: value or 1})]))  # type: ignore[arg-type]
