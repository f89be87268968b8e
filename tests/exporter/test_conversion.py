"""The converter as a program: what it is told, and how it is judged. A script stands in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter import conversion
from exporter.conversion import BIN, PARAM, arguments, convert, telling_line
from exporter.errors import ConversionError
from exporter.inputs import parse_inputs

INPUTS = parse_inputs(["1,3,8,8", "[1,7]i64"])


@pytest.fixture
def converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is run as the converter, still to be written."""
    path = tmp_path / "pnnx"
    monkeypatch.setattr(conversion, "find_converter", lambda: str(path))
    return path


def behave(converter: Path, script: str) -> None:
    converter.write_text(f"#!/bin/sh\n{script}\n")
    converter.chmod(0o755)


def run(tmp_path: Path) -> Path:
    script = tmp_path / "my-net.pt"
    script.write_bytes(b"torchscript")
    convert(script, tmp_path / "out", INPUTS)
    return tmp_path / "out"


def test_the_converter_is_told_shapes_with_their_dtypes() -> None:
    assert arguments(INPUTS, (), 2, ()) == ["inputshape=[1,3,8,8]f32,[1,7]i64", "optlevel=2", "fp16=0"]


def test_the_converter_is_told_second_shapes_and_modules_to_keep() -> None:
    found = arguments(INPUTS[:1], parse_inputs(["4,3,16,16"]), 1, ["a.B", "c.D"])
    assert found[1:4] == ["inputshape2=[4,3,16,16]f32", "moduleop=a.B,c.D", "optlevel=1"]


def test_a_converter_that_crashes_after_writing_has_converted(tmp_path: Path, converter: Path) -> None:
    behave(converter, f"cp model.pt {PARAM}; echo weights > {BIN}; kill -ABRT $$")
    folder = run(tmp_path)
    assert (folder / PARAM).read_bytes() == b"torchscript"
    assert (folder / BIN).read_bytes() == b"weights\n"


def test_a_converter_that_ends_well_without_a_pair_has_not(tmp_path: Path, converter: Path) -> None:
    behave(converter, "echo 'terminate called after Error'; echo '  what():  no such op'; echo bye; exit 0")
    with pytest.raises(ConversionError, match=r"pnnx wrote no pair: found what\(\):  no such op"):
        run(tmp_path)


def test_half_a_pair_is_no_pair(tmp_path: Path, converter: Path) -> None:
    behave(converter, f"echo text > {PARAM}")
    with pytest.raises(ConversionError, match="wrote no pair"):
        run(tmp_path)


def test_a_pair_that_was_there_before_is_not_taken_for_a_new_one(tmp_path: Path, converter: Path) -> None:
    behave(converter, "exit 1")
    (tmp_path / "out").mkdir()
    for name in (PARAM, BIN):
        (tmp_path / "out" / name).write_text("stale")
    with pytest.raises(ConversionError, match="found no message"):
        run(tmp_path)


def test_a_converter_that_cannot_be_run_is_an_error(tmp_path: Path, converter: Path) -> None:
    with pytest.raises(ConversionError, match="pnnx cannot be run: found No such file"):
        run(tmp_path)


@pytest.mark.parametrize(("said", "line"), [
    ("", "no message"),
    ("pass 1\npass 2\n\n", "pass 2"),
    ("error: bad shape\npass 2\n", "error: bad shape"),
    ("first error\nsecond error\npass 2\n", "second error"),
])  # fmt: skip
def test_of_what_the_converter_says_the_reason_is_kept(said: str, line: str) -> None:
    assert telling_line(said) == line
