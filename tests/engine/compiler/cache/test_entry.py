"""A file is a complete and unchanged entry, or it is rejected."""

from __future__ import annotations

import io
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from engine.compiler.cache import entry, facts
from engine.compiler.cache.entry import PAGE, EntryError
from engine.compiler.executable import Executable
from engine.tensor import TensorSpec
from tests.engine.compiler.cache.keeping import X, compiled, sorting

KEY = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def executable() -> Executable:
    """Return an executable with kernels, calls of the reference, outputs in memory and outputs by name."""
    found = compiled(None, sorting()).builder.program([TensorSpec(X.shape, X.dtype)]).executable
    assert found.steps and found.calls and found.reasons and found.passes and found.constants.size
    return replace(found, outputs=(*found.outputs, "constant"))


@pytest.fixture(scope="module")
def whole(executable: Executable) -> bytes:
    file = io.BytesIO()
    entry.write(file, KEY, executable)
    return file.getvalue()


def read(content: bytes, folder: Path, key: str = KEY) -> Executable:
    path = folder / "entry"
    path.write_bytes(content)
    with path.open("rb") as file:
        return entry.executable_of(entry.read(file.fileno(), key)[0])


def test_a_written_entry_is_read_back(executable: Executable, whole: bytes, tmp_path: Path) -> None:
    found = read(whole, tmp_path)
    np.testing.assert_array_equal(found.constants, executable.constants)
    assert replace(found, constants=executable.constants) == executable


def test_every_field_is_kept(executable: Executable, whole: bytes, tmp_path: Path) -> None:
    """A field that is added later must not come back as its default."""
    (call,) = [each.call for each in executable.segments if each.call is not None]
    (region, *_) = [each for each in call.inputs if each is not None]
    (step, *_) = executable.steps
    for each in (step, call, region, executable.segments[0]):
        assert len(facts._listed(each)) == len(fields(each))
    assert facts._listed(region.address) == region.address
    changed = dict.fromkeys(facts._PLAIN, 7)
    file = io.BytesIO()
    entry.write(file, KEY, replace(executable, **changed))
    found = read(file.getvalue(), tmp_path)
    assert {name: getattr(found, name) for name in changed} == changed
    assert {*changed, *facts._COMPOUND} == {each.name for each in fields(Executable)}


@pytest.mark.parametrize("place", [[0, 0, 64], None, 6, 2.5, "0"], ids=repr)
def test_an_invalid_address_is_rejected(executable: Executable, place: object) -> None:
    told = facts.to_facts(executable)
    told["steps"][0][3][0] = place
    with pytest.raises((TypeError, IndexError)):
        facts.from_facts(told, executable.code, executable.constants)


def test_an_executable_without_constants_is_read(executable: Executable, tmp_path: Path) -> None:
    file = io.BytesIO()
    entry.write(file, KEY, replace(executable, constants=np.zeros(0, np.uint8)))
    assert read(file.getvalue(), tmp_path).constants.size == 0


def test_constants_begin_on_a_page_and_end_the_file(executable: Executable, whole: bytes) -> None:
    size = executable.constants.nbytes
    assert (len(whole) - size) % PAGE == 0
    assert whole[-size:] == executable.constants.tobytes()


def test_a_flipped_bit_anywhere_is_noticed(whole: bytes, tmp_path: Path) -> None:
    for at in {*range(200), *range(200, len(whole), 37), len(whole) - 1}:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(EntryError):
            read(bytes(damaged), tmp_path)


def test_pieces_are_checked_by_themselves_and_in_their_order(
    executable: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large parts have several pieces, which threads check in parallel."""
    monkeypatch.setattr(entry, "PIECE_BYTES", 64)
    file = io.BytesIO()
    constants = np.arange(1000, dtype=np.uint8)
    entry.write(file, KEY, replace(executable, constants=constants))
    content = file.getvalue()
    np.testing.assert_array_equal(read(content, tmp_path).constants, constants)
    at = len(content) - constants.size
    for place in (at, at + 63, at + 64, at + 999):
        with pytest.raises(EntryError, match="constants are damaged"):
            read(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :], tmp_path)
    with pytest.raises(EntryError, match="constants are damaged"):
        read(content[:at] + content[at + 64 : at + 128] + content[at : at + 64] + content[at + 128 :], tmp_path)


def test_a_file_that_is_cut_off_is_noticed(whole: bytes, tmp_path: Path) -> None:
    for length in {*range(0, 200, 3), *range(200, len(whole), 997), len(whole) - 1}:
        with pytest.raises(EntryError):
            read(whole[:length], tmp_path)


def test_a_file_with_a_hole_is_noticed(whole: bytes, tmp_path: Path) -> None:
    for at in range(0, len(whole), PAGE):
        torn = whole[:at] + bytes(min(PAGE, len(whole) - at)) + whole[at + PAGE :]
        with pytest.raises(EntryError):
            read(torn, tmp_path)


@pytest.mark.parametrize("change", ["appended", "another version", "another magic", "another key", "nonsense"])
def test_an_entry_of_another_key_or_format_is_rejected(change: str, whole: bytes, tmp_path: Path) -> None:
    content, key = whole, KEY
    if change == "appended":
        content += b"\0"
    elif change == "another version":
        content = whole[:8] + b"\x63\0\0\0" + whole[12:]
    elif change == "another magic":
        content = b"PK\3\4" + whole[4:]
    elif change == "another key":
        key = KEY[::-1]
    else:
        content = bytes(range(256)) * 100
    with pytest.raises(EntryError):
        read(content, tmp_path, key)


def test_facts_that_are_not_understood_are_refused(
    executable: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nonsense in ({}, {"code": []}, [], {"code": "x", "steps": 1}):
        monkeypatch.setattr(entry, "to_facts", lambda _, nonsense=nonsense: nonsense)
        file = io.BytesIO()
        entry.write(file, KEY, executable)
        with pytest.raises(EntryError, match="cannot be decoded"):
            read(file.getvalue(), tmp_path)
