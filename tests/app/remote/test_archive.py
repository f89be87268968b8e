"""Archives of people one does not know: nothing leaves the folder, fills the disk or takes the memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.remote import archive as room
from app.remote.archive import Archive, placed
from app.remote.local_copy import SourceError
from tests.app.remote.web import tar_of

LIMIT = 2**20


def info(name: str = "evil", **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def header_of(type: bytes, data: bytes) -> bytes:
    """An extended header, and what it holds."""
    return info("name", type=type, size=len(data)).tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


def unpacked(path: Path, data: bytes, limit: int = LIMIT) -> dict[str, bytes]:
    path.write_bytes(data)
    return {name: b"".join(pieces) for name, pieces in Archive(path, limit).files()}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_files_come_as_they_were_put_in(mode: str, tmp_path: Path) -> None:
    files = {"a/1/model.pnnx.param": b"param", "a/config.toml": b"", "b.bin": bytes(range(256)) * 1000}
    folder = info("a", type=tarfile.DIRTYPE)
    data = tar_of([(folder, b""), *((f"./{name}", data) for name, data in files.items())], mode)
    assert unpacked(tmp_path / "x", data) == files


@pytest.mark.parametrize(
    "member, why",
    [
        (info("/etc/passwd"), "is not allowed in a store"),
        (info("../up"), "is not allowed in a store"),
        (info("a/../../up"), "is not allowed in a store"),
        (info("a//b"), "is not allowed in a store"),
        (info("a\\b"), "is not allowed in a store"),
        (info("a\nb"), "is not allowed in a store"),
        (info("a/" * 9 + "b"), "is not allowed in a store"),
        (info("a" * 300), "is not allowed in a store"),
        (info("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is a link, a device or a sparse file"),
        (info("link", type=tarfile.LNKTYPE, linkname="other"), "is a link, a device or a sparse file"),
        (info("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "is a link, a device or a sparse file"),
        (info("disk", type=tarfile.BLKTYPE), "is a link, a device or a sparse file"),
        (info("pipe", type=tarfile.FIFOTYPE), "is a link, a device or a sparse file"),
        (info("holes", type=tarfile.GNUTYPE_SPARSE), "is a link, a device or a sparse file"),
    ],
)
def test_hostile_members_refuse_the_whole_archive(member: tarfile.TarInfo, why: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=why):
        unpacked(tmp_path / "x", tar_of([("good", b"good"), (member, b"")]))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_may_be_there_once_and_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="occurs twice"):
        unpacked(tmp_path / "x", tar_of([("a", b"1"), ("./a", b"2")]))
    with pytest.raises(SourceError, match="is a file, and the folder of others"):
        unpacked(tmp_path / "x", tar_of([("a", b"1"), ("a/b", b"2")]))


def test_what_unpacks_to_more_than_the_limit_is_refused_before_it_is(tmp_path: Path) -> None:
    bomb = gzip.compress(tar_of([("zeros", bytes(64 * 2**20))]))
    assert len(bomb) < 100_000
    with pytest.raises(SourceError, match="unpacks to more than 1,048,576 bytes"):
        unpacked(tmp_path / "x", bomb)
    two = tar_of([("a", bytes(600_000)), ("b", bytes(600_000))])
    with pytest.raises(SourceError, match="unpacks to more than"):
        unpacked(tmp_path / "x", two)


def header(size: bytes, type: bytes = b"x") -> bytes:
    """A header with a size as it stands in the file, and its right checksum."""
    block = bytearray(info("name", type=type).tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size.ljust(12, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


HUGE = b"\x80" + (2**50).to_bytes(11, "big")
NEGATIVE = b"\xff" * 11 + b"\x00"


@pytest.mark.parametrize("type", [b"x", b"g", b"L", b"K", b"0", b"S"])
@pytest.mark.parametrize("size", [HUGE, NEGATIVE, b"77777777777"])
def test_a_lie_about_a_size_takes_neither_memory_nor_time(type: bytes, size: bytes, tmp_path: Path) -> None:
    for pack in (bytes, gzip.compress):
        with pytest.raises(SourceError):
            unpacked(tmp_path / "x", pack(header(size, type) + bytes(4096)))


def broken() -> dict[str, Callable[[bytes], bytes]]:
    return {
        "empty": lambda data: b"",
        "no archive": lambda data: b"{}" * 1000,
        "cut in a header": lambda data: data[:700],
        "cut in a file": lambda data: data[:3000],
        "cut gzip": lambda data: gzip.compress(data)[:-20],
        "gzip with another checksum": lambda data: gzip.compress(data)[:-8] + bytes(8),
        "gzip of nothing": lambda data: b"\x1f\x8b" + bytes(20),
    }


@pytest.mark.parametrize("kind", broken())
def test_a_damaged_archive_is_told_as_one(kind: str, tmp_path: Path) -> None:
    data = tar_of([("a", bytes(1000)), ("b", bytes(5000))])
    with pytest.raises(SourceError, match="archive|gzip"):
        unpacked(tmp_path / "x", broken()[kind](data))


def folder(name: str) -> tarfile.TarInfo:
    return info(name, type=tarfile.DIRTYPE)


@pytest.mark.parametrize("make", [str, folder])
def test_files_and_folders_are_counted(
    make: Callable[[str], tarfile.TarInfo | str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_FILES", 3)
    assert unpacked(tmp_path / "x", tar_of([(make(f"f{number}"), b"") for number in range(3)])) is not None
    with pytest.raises(SourceError, match="more than 3 files and folders"):
        unpacked(tmp_path / "x", tar_of([(make(f"f{number}"), b"") for number in range(4)]))


def test_folders_by_the_hundred_thousand_are_refused_by_their_number(tmp_path: Path) -> None:
    many = folder("d").tobuf() * 200_000
    read = 0

    def counting() -> bool:
        nonlocal read
        read += 1
        return False

    (tmp_path / "x").write_bytes(gzip.compress(many, 1))
    with pytest.raises(SourceError, match="found more than 20,000 files and folders in the archive"):
        list(Archive(tmp_path / "x", LIMIT, counting).files())
    assert read < 50_000


@pytest.mark.parametrize("member", [folder("d"), info("f"), header_of(b"x", b"9 a=bcde\n"), header_of(b"g", b"")])
def test_reading_ends_between_any_two_headers_when_it_is_given_up(
    member: tarfile.TarInfo | bytes, tmp_path: Path
) -> None:
    block = member if isinstance(member, bytes) else member.tobuf()
    (tmp_path / "x").write_bytes(block * 10 + bytes(1024))
    asked = 0

    def given_up() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    with pytest.raises(SourceError, match="the server stops"):
        for _, pieces in Archive(tmp_path / "x", LIMIT, given_up).files():
            list(pieces)
    assert asked == 6


@pytest.mark.parametrize("type", [b"L", b"K", b"x", b"X", b"g"])
def test_extended_headers_of_one_file_are_few(type: bytes, tmp_path: Path) -> None:
    extension = header_of(type, b"8 a=bcd\n" if type in b"xXg" else b"name\0")
    file = info("f").tobuf()
    assert list(unpacked(tmp_path / "x", extension * 16 + file)) in (["f"], ["name"])
    with pytest.raises(SourceError, match="more than 16 extended headers"):
        unpacked(tmp_path / "x", extension * 3000 + file)
    with pytest.raises(SourceError, match="ends after an extended header"):
        unpacked(tmp_path / "x", extension + bytes(1024))
    with pytest.raises(SourceError, match="made to take memory"):
        unpacked(tmp_path / "x", header_of(type, bytes(64 * 1024 + 1)) + file)


@pytest.mark.parametrize(
    "records",
    [
        b"8 a=bcd", b"8 a=bcd\n ", b"8  a=bcd\n", b"7 a=bcd\n", b"9 a=bcd\n", b"0 \n", b"-8 a=bc\n", b"8 abcde\n",
        b"99999999999999999999 a=b\n", b"\xb2 a=b\n", b" 8 a=bcd\n", b"1" * 60_000, b"14 size=12a45\n",
        b"12 size=-10\n", b"22 GNU.sparse.major=1\n",
    ],
)  # fmt: skip
def test_damaged_records_refuse_the_whole_archive(records: bytes, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        unpacked(tmp_path / "x", header_of(b"x", records) + info("f").tobuf() + bytes(1024))


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_names_of_any_length_and_letters_are_those_that_tarfile_wrote(format: int, mode: str, tmp_path: Path) -> None:
    names = ["a", "n" * 100, f"{'p' * 120}/{'q' * 90}"]
    names += [] if format == tarfile.USTAR_FORMAT else ["x" * 200, f"{'d' * 190}/{'e' * 190}", "größe/模型"]
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=format, pax_headers={"comment": "c" * 3000}) as archive:
        for number, name in enumerate(names):
            member = info(name, size=600 * number, mtime=0.5 if format == tarfile.PAX_FORMAT else 0)
            archive.addfile(member, io.BytesIO(bytes([number]) * 600 * number))
    assert unpacked(tmp_path / "x", made.getvalue()) == {
        name: bytes([number]) * 600 * number for number, name in enumerate(names)
    }


@given(st.binary(max_size=200), st.integers(0, 4000), st.integers(0, 255))
def test_whatever_is_changed_in_an_archive_only_its_own_error_is_raised(noise: bytes, at: int, byte: int) -> None:
    data = bytearray(
        header_of(b"x", b"12 path=abc\n") + info("f", size=3).tobuf() + b"abc".ljust(512, b"\0") + bytes(1024)
    )
    data[at % len(data)] = byte
    data[at % len(data) : at % len(data)] = noise if at % 2 else b""
    with tempfile.TemporaryDirectory() as place, contextlib.suppress(SourceError):
        unpacked(Path(place) / "x", bytes(data))


@pytest.mark.parametrize(
    "names, folder",
    [
        (["digits/1/model.pnnx.param", "digits/1/model.pnnx.bin"], ""),
        (["model.pnnx.param", "model.pnnx.bin"], ""),
        (["1/model.pnnx.param", "1/model.pnnx.bin"], "seven/"),
        (["config.toml", "1/model.pnnx.param"], "seven/"),
        (["manifest.json", "model.pnnx.param"], "seven/"),
    ],
)
def test_an_archive_of_one_model_is_a_store_of_that_model(names: list[str], folder: str) -> None:
    assert {placed(names, f"seven{ending}") for ending in (".tar", ".tar.gz", ".tgz")} == {folder}
