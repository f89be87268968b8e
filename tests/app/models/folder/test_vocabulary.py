"""Files of labels: lines, tokens.txt and JSON."""

from __future__ import annotations

import pytest

from app.models.folder.vocabulary import read_vocabulary


def test_lines_are_labels_also_where_they_end_in_numbers() -> None:
    assert read_vocabulary("digit 0\n digit 1\t\n\nx", "labels.txt") == ("digit 0", "digit 1", "", "x")


def test_tokens_have_their_numbers() -> None:
    assert read_vocabulary("<blk> 0\nb 2\n\u2581a 1\n  3", "tokens.txt") == ("<blk>", "\u2581a", "b", " ")


def test_json_is_a_list_or_an_object() -> None:
    assert read_vocabulary('["a", "b"]', "vocab.json") == ("a", "b")
    assert read_vocabulary('{"b": 1, "|": 0}', "vocab.json") == ("|", "b")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("a 0\nb", "tokens.txt", "line 2: found no number at its end"),
        ("a 0\nb 2", "tokens.txt", "found 2 tokens and none of number 1"),
        ("a 0\nb 99999999999", "tokens.txt", "line 2: found no number"),
        ("a 0\n\nb 1", "tokens.txt", "line 2: found no number"),
        ("{", "vocab.json", "not JSON"),
        ("{}", "vocab.json", "found other JSON"),
        ('{"a": true}', "vocab.json", "found other JSON"),
        ('{"a": -1}', "vocab.json", "none of number 0"),
        ("[1]", "vocab.json", "found other JSON, expected a list of labels, or an object of token to number"),
    ],
)
def test_other_files_are_refused(text: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_vocabulary(text, name)
