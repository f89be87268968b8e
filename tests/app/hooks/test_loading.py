"""Import of hooks.py: what is allowed, and what its errors say."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from app.errors import ConfigError
from app.hooks import HOOKS
from app.hooks.loading import open_hooks

ALLOWED = (HOOKS,)


def write(folder: Path, text: str) -> Path:
    path = folder / HOOKS
    path.write_text(text)
    return path


def test_a_model_without_the_file_has_no_hooks(tmp_path: Path) -> None:
    assert open_hooks(tmp_path / HOOKS, "m", ()) is None
    assert open_hooks(None, "m", ALLOWED) is None


def test_a_file_that_the_settings_do_not_allow_is_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\ndef preprocess(request): ...")
    with pytest.raises(ConfigError, match="expected 'hooks.py' in the setting plugins"):
        open_hooks(path, "m", ("other_module",))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1", "found neither, expected one of the functions 'preprocess', 'postprocess'"),
        ("def preprocess(:", "line 1: SyntaxError"),
        ("import there_is_no_such_module", "ModuleNotFoundError: No module named 'there_is_no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("preprocess = 5", "preprocess: expected a function of one argument"),
        ("def postprocess(): ...", "postprocess: expected a function of one argument"),
        ("def postprocess(a, b): ...", "postprocess: expected a function of one argument"),
        ("async def postprocess(outputs): ...", "found an async function"),
    ],
)
def test_an_invalid_file_is_refused_with_the_reason(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        open_hooks(write(tmp_path, text), "m", ALLOWED)
    assert str(tmp_path) not in str(caught.value)


def test_a_file_that_is_not_text_or_is_too_long_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"hooks\.py: not UTF-8"):
        open_hooks(path, "m", ALLOWED)
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match=r"hooks\.py: "):
        open_hooks(path, "m", ALLOWED)


def test_a_changed_file_is_imported_again(tmp_path: Path) -> None:
    text = "from dataclasses import dataclass\n@dataclass\nclass A:\n  n: int\ndef postprocess(outputs): return A({}).n"
    answers = []
    for number in (1, 2):
        hooks = open_hooks(write(tmp_path, text.format(number)), "m", ALLOWED)
        assert hooks is not None and hooks.makes_answers and not hooks.takes_requests
        answers.append(orjson.dumps(hooks.answer({})))
    assert answers == [b"1", b"2"]
