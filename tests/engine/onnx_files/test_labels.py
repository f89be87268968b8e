"""Labels in a file's metadata are found in the forms exporters write, and nothing else is taken for labels."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
from tests.engine.onnx_files.models import model, node, save, value


def graph_with(folder: Path, **properties: str) -> engine.RuntimeGraph:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", ["batch", 2])], [value("y", None)])
    for key, text in properties.items():
        proto.metadata_props.add(key=key, value=text)
    return engine.load(save(folder, proto))


_FORMS = (
    '["cat", "dog\'s"]',
    '{"0": "cat", "1": "dog\'s"}',
    "{0: 'cat', 1: \"dog's\"}",
    "cat\ndog's",
    "{1: \"dog's\",0:'cat',}",
)


@pytest.mark.parametrize("text", _FORMS)
@pytest.mark.parametrize("key", ["labels", "names"])
def test_labels_are_read_in_every_form(tmp_path: Path, key: str, text: str) -> None:
    assert graph_with(tmp_path, **{key: text}).labels == ("cat", "dog's")


_OTHERS = (
    *("", "cat", "[]", "[1, 2]", "{}", '["a", ["b"]]', '{"0": "a", "2": "b"}', "{0: open('x'), 1: 'b'}"),
    *("{0: 'a'", "{0: 'a' 1: 'b'}", "a\x1b[0m\nb", "x\n" + "y" * 300, "[" * 50_000, "{" + "0:" * 50_000 + "}"),
)


@pytest.mark.parametrize("text", _OTHERS)
def test_what_is_no_list_of_labels_is_left(tmp_path: Path, text: str) -> None:
    assert graph_with(tmp_path, names=text).labels == ()


def test_the_dictionary_of_a_text_recogniser_keeps_its_spaces(tmp_path: Path) -> None:
    assert graph_with(tmp_path, character="a\n\u3000\n'\n").labels == ("a", "\u3000", "'")
    assert graph_with(tmp_path, character="a\r\nb").labels == ("a", "b")
    assert graph_with(tmp_path, character="a\n\x1b[0m").labels == ()
