"""Label files of every make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.errors import ConfigError
from app.models.folder.repository import read_labels
from app.tasks.classification import ClassificationTask
from tests.app.tasks.build import task_of


def labels(folder: Path, content: bytes) -> tuple[str, ...] | None:
    (folder / "labels.txt").write_bytes(content)
    return read_labels(folder, "labels.txt")


def test_labels_are_a_list_or_the_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ngreat white shark \n\u00e9clair\n\n")
    assert read_labels(tmp_path, "labels.txt") == ("cat", "great white shark", "éclair")
    assert read_labels(tmp_path, ("a", "b")) == ("a", "b")
    assert read_labels(tmp_path, None) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.txt", "config.toml: labels: cannot read 'missing.txt': the file does not exist"),
        ("../secret", "config.toml: labels: found '../secret', expected the name of a file beside config.toml"),
        ("/etc/passwd", "config.toml: labels: found '/etc/passwd', expected the name of a file beside config.toml"),
        ("..", "config.toml: labels: found '..', expected the name of a file beside config.toml"),
        ("empty.txt", "config.toml: labels: 'empty.txt' is empty"),
        ("latin.txt", "config.toml: labels: cannot read 'latin.txt': not UTF-8"),
    ],
)
def test_labels_that_cannot_be_read_are_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError) as caught:
        read_labels(tmp_path, name)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"cat\r\ndog\r\n", ("cat", "dog")),
        (b"\xef\xbb\xbfcat\ndog", ("cat", "dog")),
        (b"n01440764 tench\nn01443537 goldfish, Carassius auratus\n",
         ("n01440764 tench", "n01443537 goldfish, Carassius auratus")),
        ("été\n日本語\n".encode(), ("été", "日本語")),
        ("a\u2028b\nc\x0cd\n".encode(), ("a\u2028b", "c\x0cd")),
        (b"\tcat \n  dog", ("cat", "dog")),
        (b"\ncat\n\ndog\n\n\n", ("", "cat", "", "dog")),
        ("a\n\u3000\n\u3000\n".encode(), ("a", "\u3000", "\u3000")),
    ],
    ids=["CRLF", "BOM", "WordNet", "not Latin", "odd separators", "blanks around", "blank lines", "wide spaces"],
)  # fmt: skip
def test_a_label_is_its_line(tmp_path: Path, content: bytes, expected: tuple[str, ...]) -> None:
    assert labels(tmp_path, content) == expected


def test_the_best_classes_have_the_labels_of_their_lines(tmp_path: Path) -> None:
    read = labels(tmp_path, b"n01440764 tench\r\n\r\nn01484850 great white shark\r\n")
    task = task_of(ClassificationTask, read)
    rows = task.predict({"out0": np.float32([[1, 3, 2]])}, (), task.options({}))[0]
    found = [(row["label"], row["index"]) for row in rows]
    assert found == [("1", 1), ("n01484850 great white shark", 2), ("n01440764 tench", 0)]
