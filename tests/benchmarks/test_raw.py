"""Raw results as JSON files, readable and compressed."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.raw import pack, raw_text, unpack


def test_list_of_numbers_is_one_line() -> None:
    text = raw_text({"times": [[1.0, 2.0], [3.0]], "names": ["a, b"], "none": {}, "nothing": None})
    assert (
        text == '{\n "times": [\n  [1.0, 2.0],\n  [3.0]\n ],\n "names": ["a, b"],\n "none": {},\n "nothing": null\n}\n'
    )


def test_floats_keep_six_digits_and_integers_all() -> None:
    assert json.loads(raw_text([17.93348199862521, 123456789, 1.5e-9, True])) == [17.9335, 123456789, 1.5e-9, True]


def test_what_was_written_is_read_as_the_same() -> None:
    data = {"machine": {"cores": 2, "engines": {}}, "records": [{"rates": {"1": [1.5, None]}, "error": 'a "word"'}]}
    assert json.loads(raw_text(data)) == data


def test_packed_data_is_read_again_and_equal_data_makes_equal_files(tmp_path: Path) -> None:
    data = {"records": [{"best_s": 0.0123456789, "name": "a"}]}
    pack(tmp_path / "a.json.gz", data)
    pack(tmp_path / "b.json.gz", data)
    assert unpack(tmp_path / "a.json.gz") == {"records": [{"best_s": 0.0123457, "name": "a"}]}
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
