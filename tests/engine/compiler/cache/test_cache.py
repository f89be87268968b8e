"""Compiled executables are found again, and no state of the folder is an error."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.compiler import builder, pipeline
from engine.compiler.cache import cache, entry
from engine.compiler.cache.cache import Cache
from engine.compiler.codegen import object_code
from tests.engine.compiler.cache.keeping import X, compiled, convolution, entries, is_cached, kept, sorting
from tests.held import open_files

ROOT = Path(__file__).parents[4]


def fail(*_: object, **__: object) -> None:
    raise AssertionError("this must not be called")


@pytest.mark.parametrize("make", [convolution, sorting])
def test_a_second_start_gives_the_same_answers(make: type, tmp_path: Path) -> None:
    answers = [compiled(tmp_path, make()).run([X]) for _ in range(2)]
    alone = compiled(None, make()).run([X])
    reference = engine.Session(make(), backend="reference").run([X])
    for first, second, unkept, right in zip(*answers, alone, reference, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, unkept)
        np.testing.assert_allclose(first, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [convolution, sorting])
def test_a_warm_start_generates_no_code(make: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, make())
    monkeypatch.setattr(object_code, "assemble", fail)
    monkeypatch.setattr(pipeline.CompilePipeline, "compile", fail)
    made = compiled(tmp_path, make())
    made.run([X])
    assert is_cached(made)


def test_a_warm_start_runs_no_pass_unless_the_reference_runs_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path)
    monkeypatch.setattr(pipeline, "optimise", fail)
    compiled(tmp_path).run([X])


def test_a_warm_start_describes_what_the_cold_one_did(tmp_path: Path) -> None:
    descriptions = []
    for _ in range(2):
        session = engine.Session(sorting(), threads=1, cache=tmp_path)
        session.prepare()
        descriptions.append(session.describe())
    cold, warm = (each["compiler"] for each in descriptions)
    assert (cold.pop("is_cached"), warm.pop("is_cached")) == (False, True)
    del cold["compile_ms"], warm["compile_ms"]
    assert warm == cold
    assert warm["entry_bytes"] == entries(tmp_path)[0].stat().st_size
    assert descriptions[0]["operators"] == descriptions[1]["operators"]


def test_constants_are_in_memory_of_their_own_and_keep_no_descriptor(tmp_path: Path) -> None:
    path = kept(tmp_path)
    made = compiled(tmp_path)
    assert is_cached(made)
    assert path.name not in Path("/proc/self/maps").read_text()
    assert open_files(tmp_path) == 0
    constants = made.builder.program([engine.TensorSpec(X.shape, X.dtype)]).executable.constants
    assert not constants.flags.writeable
    assert constants.ctypes.data % 64 == 0


@pytest.mark.parametrize("change", ["removed", "cut off", "written over", "replaced"])
def test_changing_an_entry_does_not_affect_running_processes(change: str, tmp_path: Path) -> None:
    path = kept(tmp_path)
    made = compiled(tmp_path)
    before = made.run([X])
    size = path.stat().st_size
    if change == "cut off":
        os.truncate(path, 0)
    elif change == "written over":
        path.write_bytes(bytes(size))
    else:
        path.unlink()
        if change == "replaced":
            path.write_bytes(bytes(size))
    np.testing.assert_array_equal(made.run([X]), before)
    np.testing.assert_array_equal(compiled(tmp_path).run([X]), before)


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine.Session(convolution(), cache=None).run([X])
    assert list(tmp_path.iterdir()) == []


def test_a_session_keeps_its_code_in_the_users_folder_for_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    engine.Session(convolution()).run([X])
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    engine.Session(convolution()).run([X])
    assert [len(entries(tmp_path / each)) for each in ("xdg/pnnx-serve", "home/.cache/pnnx-serve")] == [1, 1]


def test_refreshing_compiles_anew_and_replaces_the_entry(tmp_path: Path) -> None:
    path = kept(tmp_path)
    before = path.stat().st_ino
    session = engine.Session(convolution(), threads=1, cache=tmp_path)
    assert session.prepare()["is_cached"]  # type: ignore[index]
    assert not session.prepare(refresh=True)["is_cached"]  # type: ignore[index]
    assert path.stat().st_ino != before
    assert entries(tmp_path) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_costs_one_line_of_the_log(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(file: object, *_: object) -> None:
        file.write(b"the beginning")  # type: ignore[attr-defined]
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(entry, "write_content", write)
    answers = [compiled(tmp_path, convolution(seed)).run([X]) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert list(tmp_path.iterdir()) == []
    (line,) = caplog.messages
    assert f"the compile cache {tmp_path} cannot be written ({os.strerror(number)})" in line


def test_a_file_in_place_of_the_folder_costs_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "taken"
    folder.write_text("by something else")
    for _ in range(2):
        compiled(folder).run([X])
    assert len(caplog.messages) == 1


def test_a_read_only_cache_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert is_cached(compiled(tmp_path))
    assert caplog.messages == []


def test_the_least_recently_used_entry_is_evicted_first(tmp_path: Path) -> None:
    first, second = kept(tmp_path, convolution(1)), kept(tmp_path, convolution(2))
    for path, age in ((first, 200), (second, 100)):
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    size = first.stat().st_size
    assert is_cached(compiled(tmp_path, convolution(1)))  # used: now the second is the oldest
    compiled(tmp_path, convolution(3), cache_max_bytes=2 * size + size // 2).run([X])
    left = entries(tmp_path)
    assert first in left
    assert second not in left
    assert len(left) == 2


def test_an_entry_larger_than_the_limit_is_not_stored(tmp_path: Path) -> None:
    compiled(tmp_path, cache_max_bytes=100).run([X])
    assert entries(tmp_path) == []


def test_files_that_a_dead_writer_left_are_removed_and_others_are_not(tmp_path: Path) -> None:
    names = ("old.1-a.unfinished", "new.2-b.unfinished", "notes.txt")
    for name in names:
        (tmp_path / name).write_text("")
    for name in ("old.1-a.unfinished", "notes.txt"):
        os.utime(tmp_path / name, (1e9, 1e9))
    kept(tmp_path)
    assert [name for name in names if (tmp_path / name).exists()] == ["new.2-b.unfinished", "notes.txt"]


def test_a_generator_whose_sources_change_under_it_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "is_unchanged", lambda: False)
    compiled(tmp_path).run([X])
    assert entries(tmp_path) == []


def test_an_entry_that_leaves_other_operators_to_the_reference_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path, sorting())
    optimise = pipeline.optimise
    renamed = sorting()
    renamed.rename("sorted", "arranged")
    renamed.build()
    monkeypatch.setattr(pipeline, "optimise", lambda graph, off, *rest: optimise(renamed, off, *rest))
    made = compiled(tmp_path, sorting())
    assert not is_cached(made)
    assert len(made.run([X])) == 3


WRITER = """
import sys
from pathlib import Path
from tests.engine.compiler.cache.keeping import X, compiled, convolution
from engine import TensorSpec
from engine.compiler import builder
from engine.compiler.cache import fingerprint
from engine.compiler.codegen.host import detect
builder.is_unchanged, fingerprint.GENERATOR = (lambda: True), "of these tests"
builder.this_host = lambda options: detect()
made = compiled(Path(sys.argv[1]), convolution())
print(made.builder.program([TensorSpec(X.shape, X.dtype)]).origin.is_cached, flush=True)
for _ in range(int(sys.argv[2])):
    made.prepare([TensorSpec(X.shape, X.dtype)], refresh=True)
print(made.run([X])[0].tobytes().hex())
"""


def start(folder: Path, turns: int, seed: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(turns)]
    environ = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)


def test_processes_write_and_read_one_entry_at_once(tmp_path: Path) -> None:
    children = [start(tmp_path, 15, seed) for seed in ("1", "2")]
    said = [child.communicate(timeout=120)[0].splitlines() for child in children]
    expected = compiled(None).run([X])[0].tobytes().hex()
    assert [lines[1] for lines in said] == [expected, expected]
    assert len(list(tmp_path.iterdir())) == 1
    assert is_cached(compiled(tmp_path))


def test_another_process_finds_what_this_one_compiled(tmp_path: Path) -> None:
    kept(tmp_path)
    assert start(tmp_path, 0, "3").communicate(timeout=120)[0].splitlines()[0] == "True"


def test_a_damaged_entry_is_logged_removed_and_compiled_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = kept(tmp_path)
    expected = compiled(None).run([X])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    caplog.set_level(logging.WARNING)
    made = compiled(tmp_path)
    np.testing.assert_array_equal(made.run([X]), expected)
    assert not is_cached(made)
    expected = "a bad entry of the compile cache is removed and compiled anew: its constants are damaged"
    assert caplog.messages == [expected]
    assert path.stat().st_size == len(whole)
    assert is_cached(compiled(tmp_path))


def test_a_folder_is_complained_about_once_a_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "taken"
    folder.write_text("")
    for max_bytes in (1, 2):
        assert Cache(folder=folder, max_bytes=max_bytes).load("0" * 64) is None
    assert len(caplog.messages) == 1
    assert folder in cache._complaints
