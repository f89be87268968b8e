"""Attributes: every dtype, as views of the mapped file."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np
import pytest

from engine import pnnx
from engine.errors import WeightsError
from engine.pnnx.pair import Weights
from engine.pnnx.shapes import Declaration
from engine.tensor import BFLOAT16, DTYPES, Array
from tests.engine.pnnx.build import Entry, archive, pair, save

STORED: list[tuple[str, bytes, Array]] = [
    ("f32", struct.pack("<2f", 1.5, -2), np.array([1.5, -2], np.float32)),
    ("f64", struct.pack("<2d", 1.5, -2), np.array([1.5, -2], np.float64)),
    ("f16", struct.pack("<2e", 1.5, -2), np.array([1.5, -2], np.float16)),
    ("bf16", b"\xc0\x3f\x00\xc0", np.array([1.5, -2], BFLOAT16)),
    ("i64", struct.pack("<2q", 2**40, -2), np.array([2**40, -2], np.int64)),
    ("i32", struct.pack("<2i", 2**20, -2), np.array([2**20, -2], np.int32)),
    ("i16", struct.pack("<2h", 2**10, -2), np.array([2**10, -2], np.int16)),
    ("i8", struct.pack("<2b", 100, -2), np.array([100, -2], np.int8)),
    ("u8", struct.pack("<2B", 200, 2), np.array([200, 2], np.uint8)),
    ("bool", b"\1\0", np.array([True, False])),
    ("c64", struct.pack("<4f", 1, 2, 3, 4), np.array([1 + 2j, 3 + 4j], np.complex64)),
    ("c128", struct.pack("<4d", 1, 2, 3, 4), np.array([1 + 2j, 3 + 4j], np.complex128)),
    ("c32", struct.pack("<4e", 1, 2, 3, 4), np.array([1 + 2j, 3 + 4j], np.complex64)),
]
every = pytest.mark.parametrize(("code", "data", "values"), STORED, ids=[code for code, _, _ in STORED])


def model(folder: Path, declared: str, weights: bytes) -> Path:
    text = f"7767517\n2 1\npnnx.Attribute a 0 1 0 @data={declared}\npnnx.Output out 1 0 0\n"
    return save(folder, text.encode(), weights)


def attribute(folder: Path, declared: str, data: bytes) -> pnnx.Attribute:
    path = model(folder, declared, archive([Entry(name="a.data", data=data)]))
    return pnnx.read(path).operators[0].attributes["data"]


def test_every_dtype_is_sampled() -> None:
    assert {code for code, _, _ in STORED} == set(DTYPES)


@every
def test_stored_values_are_read(tmp_path: Path, code: str, data: bytes, values: Array) -> None:
    read = attribute(tmp_path, f"(2){code}", data)
    np.testing.assert_array_equal(read.data, values, strict=True)
    assert (read.shape, read.dtype, read.code) == ((2,), values.dtype, code)


@every
def test_data_cannot_be_written_to(tmp_path: Path, code: str, data: bytes, values: Array) -> None:
    assert not attribute(tmp_path, f"(2){code}", data).data.flags.writeable


@every
def test_written_values_read_as_themselves(tmp_path: Path, code: str, data: bytes, values: Array) -> None:
    graph = pnnx.read(model(tmp_path, f"(1,2){code}", archive([Entry(name="a.data", data=data)])))
    pnnx.write(graph, tmp_path / "copy.param")
    assert pnnx.read(tmp_path / "copy.param", verify=True) == graph


def test_data_is_a_view_of_the_mapped_file(tmp_path: Path) -> None:
    base: object = attribute(tmp_path, "(2)f32", bytes(8)).data
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


def test_empty_shape_is_one_element_without_dimensions(tmp_path: Path) -> None:
    read = attribute(tmp_path, "()i64", struct.pack("<q", 7))
    assert (read.data.shape, int(read.data)) == ((), 7)


@pytest.mark.parametrize("code", DTYPES)
def test_dimensions_may_be_zero(tmp_path: Path, code: str) -> None:
    assert attribute(tmp_path, f"(0,3){code}", b"").data.shape == (0, 3)


def test_missing_member_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path, "(2)f32", archive([Entry(name="b.data", data=bytes(8))]))
    with pytest.raises(WeightsError) as caught:
        pnnx.read(path)
    assert str(caught.value) == "model.pnnx.bin: 'a.data': the member is missing, expected 8 bytes"


@pytest.mark.parametrize("size", [0, 7, 9, 16])
def test_member_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(WeightsError) as caught:
        attribute(tmp_path, "(2)f32", bytes(size))
    expected = f"model.pnnx.bin: 'a.data': wrong size: found {size} bytes, expected 8 bytes for f32 [2]"
    assert str(caught.value) == expected


def test_declared_size_is_never_allocated(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="expected 9,223,372,028,264,841,216 bytes"):
        attribute(tmp_path, "(2147483648,1073741823)f32", bytes(8))


def test_bool_beyond_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="'a.data': a bool is neither 0 nor 1: found 2"):
        attribute(tmp_path, "(2)bool", b"\1\2")


def test_members_no_attribute_refers_to_are_harmless(tmp_path: Path) -> None:
    path = model(tmp_path, "(1)u8", archive([Entry(name="a.data", data=b"1"), Entry(name="notes/", data=b"")]))
    assert pnnx.read(path).operators[0].attributes["data"].data == [49]


def test_damage_is_found_when_verified(tmp_path: Path) -> None:
    path = model(tmp_path, "(1)u8", archive([Entry(name="a.data", data=b"1", crc=5)]))
    pnnx.read(path)
    with pytest.raises(
        WeightsError, match=r"^model.pnnx.bin: 'a.data': wrong CRC-32: found 83dcefb7, expected 00000005$"
    ):
        pnnx.read(path, verify=True)


def test_special_floats_keep_their_bytes() -> None:
    data = struct.pack("<4I", 0x7FC00001, 0xFF800000, 0x80000000, 0x7F800001)
    weights = Weights(archive([Entry(name="a.w", data=data)]))
    assert weights.attribute("a.w", Declaration((4,), "f32")).data.tobytes() == data


def attribute_graph(attribute: pnnx.Attribute) -> pnnx.Graph:
    operator = pnnx.Operator("pnnx.Attribute", "a", (), ("0",), {}, {"data": attribute})
    return pnnx.Graph([operator, pnnx.Operator("pnnx.Output", "out", ("0",))])


ONES = np.ones((2, 3), np.float32)
LYING = [
    (pnnx.Attribute((2, 3), ONES.dtype, ONES.astype(np.float64)), "found float64 [2, 3], expected f32 [2, 3]"),
    (pnnx.Attribute((3, 2), ONES.dtype, ONES), "found float32 [2, 3], expected f32 [3, 2]"),
    (pnnx.Attribute((2, 3), ONES.dtype, ONES, "f16"), "found float32 [2, 3], expected f16 [2, 3]"),
]


@pytest.mark.parametrize(("attribute", "text"), LYING)
def test_attribute_that_contradicts_itself_is_not_written(tmp_path: Path, attribute: pnnx.Attribute, text: str) -> None:
    with pytest.raises(WeightsError) as caught:
        pnnx.write(attribute_graph(attribute), tmp_path / "m.param")
    assert str(caught.value) == f"m.bin: 'a.data': the attribute contradicts itself: {text}"
    assert list(tmp_path.iterdir()) == []


def test_dtype_the_format_has_not_is_not_written(tmp_path: Path) -> None:
    data = np.ones(2, np.uint16)
    with pytest.raises(WeightsError, match="m.param line 3: attribute 'data': unknown dtype of an attribute: found ''"):
        pnnx.write(attribute_graph(pnnx.Attribute((2,), data.dtype, data)), tmp_path / "m.param")


def test_complex32_that_would_be_rounded_is_not_written(tmp_path: Path) -> None:
    data = np.array([1 + 1e-6j], np.complex64)
    with pytest.raises(WeightsError, match="m.bin: 'a.data': complex32 cannot hold a value"):
        pnnx.write(attribute_graph(pnnx.Attribute((1,), data.dtype, data, "c32")), tmp_path / "m.param")


def test_array_in_any_memory_order_is_written(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32).reshape(3, 2).T
    pnnx.write(attribute_graph(pnnx.Attribute((2, 3), data.dtype, data)), tmp_path / "m.param")
    read = pnnx.read(tmp_path / "m.param").operators[0].attributes["data"]
    np.testing.assert_array_equal(read.data, data)


def test_attributes_of_other_bytes_shape_or_code_differ() -> None:
    zeros = np.zeros(2, np.complex64)
    mine = pnnx.Attribute((2,), zeros.dtype, zeros)
    others = [
        pnnx.Attribute((2,), zeros.dtype, zeros + 1),
        pnnx.Attribute((1, 2), zeros.dtype, zeros.reshape(1, 2)),
        pnnx.Attribute((2,), zeros.dtype, zeros, "c32"),
    ]
    assert mine not in [*others, "an attribute"]
    assert mine == pnnx.Attribute((2,), zeros.dtype, zeros.copy(), "c64")


def test_shared_pair_builder_makes_both_dialects(tmp_path: Path) -> None:
    lines, contents = ["pnnx.Attribute a 0 1 0 @data=(1)u8", "pnnx.Output out 1 0 0"], {"a.data": b"1"}
    graphs = [pnnx.read(pair(tmp_path, lines, contents, zip64=zip64), verify=True) for zip64 in (True, False)]
    assert graphs[0] == graphs[1]
