"""Tests that any content of a store fails its model only, with a reason in plain text."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.models.folder import config, repository
from app.models.folder.repository import scan
from app.serving import dataplane
from tests.app.client import Client, serving
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model
from tests.patience import PATIENCE_S

ADD = elementwise("add(@0,1)", "(?,2)f32")


def text(content: str | bytes) -> Callable[[Path], None]:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data) and None  # type: ignore[func-returns-value]


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def long(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**30)


# What may lie where a text file is expected, and what is said of it, whichever file it is.
NO_TEXT: list[tuple[Callable[[Path], None], str]] = [
    (os.mkfifo, "not a regular file"),
    (link("/dev/zero"), "'config.toml' is a link, or behind a link, to a place outside the model's folder"),
    (link("/dev/full"), "'config.toml' is a link, or behind a link, to a place outside the model's folder"),
    (Path.mkdir, "not a regular file"),
    (link("nowhere"), "the file does not exist"),
    (link("config.toml"), "Too many levels of symbolic links"),
    (long, "bytes, expected at most "),
    (text(b"\xff\xfe\x00"), "not UTF-8"),
]
CONFIGS: list[tuple[Callable[[Path], None], str]] = [
    *NO_TEXT,
    (text(f"task = {'[' * 20_000}{']' * 20_000}"), "nested too deeply"),
    (text(f"task = {'{a=' * 20_000}1{'}' * 20_000}"), "nested too deeply"),
    (text(f"{'a.' * 50_000}a = 1"), "nested too deeply"),
    (text(f"[{'a.' * 50_000}a]"), "nested too deeply"),
    (text("'a' . " * 100_000 + "b = 1"), "nested too deeply"),
    (text(f"threads = {'9' * 5_000}"), "a value that cannot be read: Exceeds the limit"),
    (text(f"threads = {'9' * 4_000}"), "threads: expected at most 1024"),
    (text(f"labels = [{'1,' * 20_000}]"), "and more: "),
    (text(f"versions = [{'1,' * 20_000}]"), "versions.specific: "),
    (text(f"{'x' * 100_000} = 1"), "unknown key"),
    (text('"\\u001b[2J\\n" = 1'), "\\x1b[2J\\n: unknown key"),
    (text('labels = "a\\u0000b"'), "cannot read 'a\\x00b': the file cannot be read: found embedded null byte"),
    (text('labels = "' + "a" * 5_000 + '"'), "File name too long"),
    (text("labels = [1979-05-27T00:32:00+99:99]"), "config.toml: "),
]


def models(client: Client) -> dict[str, dict[str, Any]]:
    response = client.get("/models")
    return {row["name"]: row for row in json.loads(response.content.decode())["models"]}


def check(row: dict[str, Any], expected: str) -> None:
    reason = row["reason"]
    assert row["state"] == "failed" and expected in reason, reason
    assert len(reason) < 2_500 and reason.isprintable() and "internal error" not in reason


def test_any_config_is_the_reason_of_its_model_alone(tmp_path: Path) -> None:
    for number, (make, _) in enumerate(CONFIGS):
        write_model(tmp_path, f"bad{number}", ADD)
        make(tmp_path / f"bad{number}" / "config.toml")
    write_model(tmp_path, "good", ADD)
    with serving(tmp_path, cache=False) as client:
        rows = models(client)
        assert client.infer("good", [[1, 2]]).status_code == 200
    for number, (_, reason) in enumerate(CONFIGS):
        check(rows[f"bad{number}"], reason)


def test_any_labels_are_the_reason_of_their_model_alone(tmp_path: Path) -> None:
    several = [*NO_TEXT, (text("a\n" * 300_000 + "b"), "lines in 'config.toml'")]
    for number, (make, _) in enumerate(several):
        (tmp_path / f"bad{number}").mkdir()
        make(tmp_path / f"bad{number}" / "config.toml")
    for number, (_, reason) in enumerate(several):
        with pytest.raises(repository.ConfigError, match=reason.replace("(", ".")):
            repository.read_labels(tmp_path / f"bad{number}", "config.toml")


def test_links_that_lead_nowhere_and_files_among_the_folders_are_told(tmp_path: Path) -> None:
    write_model(tmp_path, "good", ADD)
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "linked").symlink_to("good")
    os.mkfifo(tmp_path / "pipe.pnnx.param")
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file-as-version").mkdir()
    (tmp_path / "file-as-version" / "1").write_text("")
    with serving(tmp_path, cache=False) as client:
        rows = models(client)
    assert {name for name, row in rows.items() if row["state"] == "ready"} == {"good", "linked"}
    check(rows["dangling"], "No such file or directory")
    check(rows["circle"], "Too many levels of symbolic links")
    check(rows["empty"], "waiting for files: expected a folder named by a number")
    check(rows["file-as-version"], "no version: expected a folder named by a number")
    assert "file" not in rows


@pytest.mark.parametrize(
    "name", [b"caf\xe9", b"\xff\xfe", b"a\nb", b"a\x1b[2J", "a\u202eb".encode(), b"a\\b", b'"', b"a\tb"]
)
def test_any_name_can_be_answered(tmp_path: Path, name: bytes) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/" + name)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b".pnnx.param")).write_text("")
    write_model(tmp_path, "good", ADD)
    with serving(tmp_path, cache=False) as client:
        rows, ready = models(client), client.get("/health/ready")
        (other,) = set(rows) - {"good"}
        assert client.get("/models/none").json()["error"]["detail"]["known"] == sorted(rows)
    assert other.isprintable() and rows[other]["state"] == "failed" and ready.status_code == 503
    assert json.loads(ready.content.decode())["ready"] is False


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "Permission denied"), "cannot be read: Permission denied"),
        (OSError(5, "Input/output error"), "cannot be read: Input/output error"),
        (OSError(), "cannot be read: OSError"),
        (RecursionError(), "internal error"),
        (MemoryError(), "internal error"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "no"), "internal error"),
        (KeyError("x"), "internal error"),
    ],
)
@pytest.mark.parametrize("place", ["read_config", "read_labels", "_versions"])
def test_any_exception_of_a_folder_is_its_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: Exception, reason: str
) -> None:
    real = getattr(repository, place)

    def fail(folder: Path, *rest: Any) -> Any:
        if folder.name == "bad":
            raise error
        return real(folder, *rest)

    monkeypatch.setattr(repository, place, fail)
    for name in ("bad", "good"):
        write_model(tmp_path, name, ADD)
    found = {files.name: files.problem for files in scan(tmp_path)}
    assert found["good"] is None and str(found["bad"]).startswith(reason)


def test_a_config_as_long_as_may_be_is_read_in_time_proportional_to_it(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        """Return the least CPU time of this thread in three runs."""
        (tmp_path / "config.toml").write_text("labels = [" + '"a label",' * count + "]")
        found = []
        for _ in range(3):
            start = time.thread_time()
            config.read_config(tmp_path)
            found.append(time.thread_time() - start)
        return min(found)

    # A quadratic cost would be 256 times as much for a text 16 times as long.
    assert seconds(40_000) < 64 * seconds(2_500)


def test_a_model_that_is_stuck_lets_the_others_serve_and_the_server_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataplane, "STOP_LOADING_S", 0.01)
    write_model(tmp_path, "a-stuck", through("test.Wait", "(1,2)f32"))
    for name in ("good", "better"):
        write_model(tmp_path, name, ADD)
    with serving(tmp_path, wait=False, cache=False) as client:
        TURNSTILE.wait_until_entered()
        end = time.monotonic() + PATIENCE_S
        while client.infer("good", [[1, 2]]).status_code != 200 or client.infer("better", [[1, 2]]).status_code != 200:
            assert time.monotonic() < end
        states = {name: row["state"] for name, row in models(client).items()}
        ready = client.get("/health/ready")
        refused = client.infer("a-stuck", [[1, 2]])
    assert states == {"a-stuck": "loading", "good": "ready", "better": "ready"}
    assert ready.status_code == 503 and "the models are loading: a-stuck" in ready.text
    assert refused.status_code == 503 and "'a-stuck' is loading" in refused.text
    assert client.plane.is_loading and not client.plane.is_busy
    TURNSTILE.let_through()


def test_a_model_too_large_for_the_machine_is_neither_compiled_nor_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.total_memory_bytes", lambda: 10_000)
    for name, size in (("large", 2_000), ("small", 200)):
        write_model(tmp_path, name, through("nn.ReLU", f"(1,{size})f32"))
    with serving(tmp_path, cache=False) as client:
        rows = models(client)
    assert rows["small"]["state"] == "ready"
    check(rows["large"], "bytes, expected at most 10,000")
