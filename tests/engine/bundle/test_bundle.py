"""A bundle answers as its model does, without a compiler; an altered one is rejected."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.bundle import MANIFEST, PARAM, WEIGHTS, HostClass
from engine.bundle.manifest import Manifest
from engine.compiler.bundling import programs, writing
from engine.errors import BundleError
from engine.tensor import Array, TensorSpec
from tests.engine.bundle.conftest import manifest, restate
from tests.engine.compiler.cache.keeping import SHAPE, X, convolution, sorting
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def session(folder: Path, **options: object) -> engine.Session:
    given = {"cache": None, "threads": 1, **options}
    return engine.Session(engine.load(folder), **given)  # type: ignore[arg-type]


def right(x: Array = X) -> Array:
    return engine.Session(convolution(), backend="reference").run([x])[0]


def refusal(folder: Path) -> BundleError:
    with pytest.raises(BundleError) as caught:
        engine.load(folder)
    return caught.value


def program_files(folder: Path) -> list[Path]:
    return [folder / each.file for each in manifest(folder).programs]


# -- running -----------------------------------------------------------------------------------------------------------

CHILD = """
import sys, json
sys.modules["llvmlite"] = None
import numpy as np
import engine
session = engine.Session(engine.load(sys.argv[1]), cache=None, threads=1, backend=sys.argv[2])
answers = []
for batch in (1, 2, 3):
    try:
        x = np.ones((batch, 4, 6, 6), np.float32)
        answers.append(float(session.run([x])[0].astype(np.float64).sum()))
    except engine.CompileError as error:
        answers.append(str(error))
print(json.dumps([answers, session.backend, session.describe()["bundle"], session.describe()["compiler"]]))
"""


def child(folder: Path, backend: str) -> tuple[list[float | str], str, dict[str, object], dict[str, object]]:
    command = [sys.executable, "-c", CHILD, str(folder), backend]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    answers, name, told, compiler = json.loads(done.stdout)
    return answers, name, told, compiler


def test_without_llvm_its_programs_run_and_the_reference_runs_other_shapes(bundle: Path) -> None:
    answers, backend, told, compiler = child(bundle, "auto")
    ones = [np.ones((batch, *SHAPE[1:]), np.float32) for batch in (1, 2, 3)]
    np.testing.assert_allclose(answers, [float(right(x).astype(np.float64).sum()) for x in ones], rtol=1e-5)
    assert backend == "compiled" and compiler["is_cached"] is True
    assert told["programs"] == [[list(SHAPE)], [[2, *SHAPE[1:]]]]
    assert told["other_shapes"] == "reference" and "llvmlite is not installed" in str(told["why"])


def test_a_shape_that_cannot_be_compiled_is_rejected_and_its_programs_run(bundle: Path) -> None:
    answers, _, told, _ = child(bundle, "compiled")
    assert isinstance(answers[0], float) and isinstance(answers[1], float)
    assert "the bundle has no program for these shapes, and llvmlite is not installed" in str(answers[2])
    assert told["other_shapes"] == "refused"


@pytest.mark.parametrize("batch", [1, 2])
def test_its_programs_are_found_for_their_batches(batch: int, bundle: Path) -> None:
    x = np.repeat(X, batch, axis=0)
    found = session(bundle)
    np.testing.assert_allclose(found.run([x])[0], right(x), rtol=1e-4, atol=1e-5)
    assert (found.prepare(batch) or {})["is_cached"] is True
    assert found.carries([TensorSpec(x.shape, x.dtype)])


def test_with_a_compiler_other_shapes_are_compiled(bundle: Path) -> None:
    found = session(bundle, backend="compiled")
    x = np.repeat(X, 3, axis=0)
    np.testing.assert_allclose(found.run([x])[0], right(x), rtol=1e-4, atol=1e-5)
    assert (found.prepare(3) or {})["is_cached"] is False
    assert found.describe()["bundle"]["other_shapes"] == "compiled"


def test_operators_of_the_reference_and_values_that_are_returned_travel_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "is_unchanged", lambda: True)
    made = engine.Session(sorting(), cache=None, threads=1)
    made.save_bundle(tmp_path / "b")
    found = session(tmp_path / "b")
    for mine, theirs in zip(found.run([X]), made.run([X]), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert found.describe()["compiler"]["is_cached"] is True


def test_other_options_than_it_was_compiled_with_find_none_of_its_programs(bundle: Path) -> None:
    found = session(bundle, winograd="off")
    np.testing.assert_allclose(found.run([X])[0], right(), rtol=1e-4, atol=1e-5)
    assert found.describe()["compiler"]["is_cached"] is False


def test_an_edited_graph_finds_none_of_them(bundle: Path) -> None:
    graph = engine.load(bundle)
    graph.remove("relu")
    graph.build()
    found = engine.Session(graph, cache=None, threads=1)
    assert found.run([X])[0].min() < 0
    assert found.describe()["compiler"]["is_cached"] is False


def test_its_pair_is_a_model_by_itself(bundle: Path) -> None:
    graph = engine.load(bundle / PARAM)
    assert graph.bundle is None
    np.testing.assert_array_equal(engine.Session(graph, backend="reference").run([X])[0], right())


# -- other machines and engines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        HostClass(level="avx512", processor="another", caches=(64, 1, 2, 3)),
        HostClass(level="neon", processor="an arm", caches=None),
        HostClass(level="avx99", processor="of the future", caches=None),
    ],
)
def test_another_machine_is_rejected_with_the_found_and_the_expected_one(host: HostClass, bundle: Path) -> None:
    restate(bundle, host=host)
    error = refusal(bundle)
    assert error.where == MANIFEST and "another kind of machine" in error.problem
    assert host.level in str(error.found)
    assert programs.class_of(programs._level()).processor in str(error.expected)


def test_a_portable_bundle_of_a_lower_level_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "is_unchanged", lambda: True)
    lowest = "neon" if programs._level() == "neon" else "sse"
    made = engine.Session(convolution(), cache=None, threads=1)
    made.save_bundle(tmp_path / "b", target=lowest)
    found = session(tmp_path / "b")
    np.testing.assert_allclose(found.run([X])[0], right(), rtol=1e-4, atol=1e-5)
    assert found.describe()["compiler"]["host"] == lowest


def test_editing_the_host_class_makes_no_program_match(bundle: Path) -> None:
    known = manifest(bundle).host
    restate(bundle, host=replace(known, caches=None))
    assert not session(bundle).carries([TensorSpec(SHAPE, np.dtype(np.float32))])


def test_another_version_of_the_engine_rejects_it(bundle: Path) -> None:
    restate(bundle, sources="0" * 64, engine="9.9")
    error = refusal(bundle)
    assert "another version of the engine" in error.problem and str(error.found).startswith("9.9 (sources 000000")


# -- attacks -----------------------------------------------------------------------------------------------------------


def test_a_manifest_truncated_anywhere_is_rejected(bundle: Path) -> None:
    content = (bundle / MANIFEST).read_bytes()
    for end in range(len(content.rstrip())):
        (bundle / MANIFEST).write_bytes(content[:end])
        assert refusal(bundle).where == MANIFEST


def test_a_manifest_with_a_changed_byte_is_rejected(bundle: Path) -> None:
    content = bytearray((bundle / MANIFEST).read_bytes())
    for at in range(0, len(content), 7):
        before = content[at]
        if chr(before).isspace():
            continue
        content[at] ^= 1
        (bundle / MANIFEST).write_bytes(content)
        assert refusal(bundle).where == MANIFEST
        content[at] = before


def every_file(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.iterdir()) if path.name != MANIFEST]


def test_a_truncated_or_too_long_file_is_named(bundle: Path) -> None:
    for name in every_file(bundle):
        content = (bundle / name).read_bytes()
        for end in {0, 1, 8, 92, len(content) // 2, len(content) - 1} & set(range(len(content))):
            (bundle / name).write_bytes(content[:end])
            error = refusal(bundle)
            assert (error.where, error.problem) == (name, "the file is truncated")
        (bundle / name).write_bytes(content + b"\0")
        assert refusal(bundle).problem == "the file is too long"
        (bundle / name).write_bytes(content)


def test_a_huge_sparse_file_is_not_read(bundle: Path) -> None:
    stated = (bundle / MANIFEST).read_bytes()
    for path in (*program_files(bundle), bundle / WEIGHTS):
        size = path.stat().st_size
        os.truncate(path, 1 << 43)

        def vast(known: Manifest, name: str = path.name) -> Manifest:
            return replace(known, files={**known.files, name: replace(known.files[name], bytes=1 << 43)})

        (bundle / MANIFEST).write_bytes(vast(manifest(bundle)).print())
        error = refusal(bundle)
        assert (error.where, error.problem) == (path.name, "the file is too large")
        os.truncate(path, size)
        (bundle / MANIFEST).write_bytes(stated)


def test_reading_can_be_cancelled(bundle: Path) -> None:
    with engine.cancelling(lambda: True), pytest.raises(engine.RunCancelledError):
        engine.load(bundle)


def test_a_file_with_a_flipped_bit_is_named(bundle: Path) -> None:
    for name in every_file(bundle):
        content = bytearray((bundle / name).read_bytes())
        content[len(content) // 2] ^= 1
        (bundle / name).write_bytes(content)
        error = refusal(bundle)
        assert error.where == name and "not the one that was bundled" in error.problem
        content[len(content) // 2] ^= 1
        (bundle / name).write_bytes(content)


def test_a_file_that_is_missing_is_named(bundle: Path) -> None:
    for name in every_file(bundle):
        (bundle / name).rename(bundle.parent / "away")
        assert str(refusal(bundle)) == f"{name}: the file is missing"
        (bundle.parent / "away").rename(bundle / name)


@pytest.mark.parametrize("target", ["the same content", "a device", "a pipe"])
def test_links_and_special_files_are_not_followed_and_do_not_block(target: str, bundle: Path) -> None:
    for name in [*every_file(bundle), MANIFEST]:
        kept = (bundle / name).rename(bundle.parent / "away")
        if target == "a pipe":
            os.mkfifo(bundle / name)
        else:
            (bundle / name).symlink_to(kept if target == "the same content" else "/dev/zero")
        error = refusal(bundle)
        assert (error.where, error.found) == (name, "not a regular file")
        (bundle / name).unlink()
        kept.rename(bundle / name)


@pytest.mark.parametrize("name", ["../away", "/etc/passwd", "a/b", "..", "", "a\0b", MANIFEST])
def test_names_that_lead_out_of_the_folder_are_refused(name: str, bundle: Path) -> None:
    def add(known: Manifest) -> Manifest:
        return replace(known, files={**known.files, name: known.files[PARAM]})

    restate(bundle, add)
    assert refusal(bundle).where == MANIFEST


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["files"].pop(WEIGHTS),
        lambda told: told["files"][PARAM].update(bytes=-1),
        lambda told: told["files"][PARAM].update(bytes=True),
        lambda told: told["files"][PARAM].update(sha256="x" * 64),
        lambda told: told["programs"][0].update(file="program"),
        lambda told: told["programs"][0].update(inputs=[{"shape": [1 << 60], "dtype": "float32"}]),
        lambda told: told.update(programs=[told["programs"][0]] * 5000),
        lambda told: told.update(host=None),
        lambda told: told.update(version=2),
        lambda told: told.update(format="another"),
    ],
)
def test_a_manifest_that_is_not_of_its_form_is_refused(
    change: Callable[[dict[str, object]], object], bundle: Path
) -> None:
    from engine.bundle.manifest import _hash

    told = json.loads((bundle / MANIFEST).read_text())
    del told["sha256"]
    change(told)
    (bundle / MANIFEST).write_text(json.dumps({**told, "sha256": _hash(told)}))
    assert refusal(bundle).where == MANIFEST


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"[" * 100_000, b'{"format": NaN}', b"\xff\xfe", b" " * (5 << 20)]
)
def test_a_manifest_that_is_something_else_is_refused(content: bytes, bundle: Path) -> None:
    (bundle / MANIFEST).write_bytes(content)
    assert refusal(bundle).where == MANIFEST


def test_swapped_programs_are_rejected_even_with_a_matching_manifest(bundle: Path) -> None:
    first, second = program_files(bundle)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    restate(bundle)
    with pytest.raises(BundleError, match="the entry belongs to another key"):
        session(bundle, backend="compiled").run([X])
    np.testing.assert_array_equal(session(bundle).run([X])[0], right())


def test_code_of_other_weights_is_not_run(bundle: Path) -> None:
    content = bytearray((bundle / WEIGHTS).read_bytes())
    graph = engine.load(bundle)
    (conv,) = [op for op in graph.operators if op.name == "conv"]
    at = bytes(content).index(conv.attributes["weight"].data.tobytes())
    content[at : at + 4] = np.float32(7).tobytes()
    (bundle / WEIGHTS).write_bytes(content)
    restate(bundle)
    found = session(bundle)
    expected = engine.Session(engine.load(bundle / PARAM), backend="reference").run([X])[0]
    np.testing.assert_allclose(found.run([X])[0], expected, rtol=1e-4, atol=1e-5)
    assert found.describe()["compiler"]["is_cached"] is False


def test_changing_the_files_after_loading_has_no_effect(bundle: Path) -> None:
    found = session(bundle)
    for path in bundle.iterdir():
        path.write_bytes(b"\0" * path.stat().st_size)
    np.testing.assert_allclose(found.run([X])[0], right(), rtol=1e-4, atol=1e-5)
    shutil.rmtree(bundle)
    both = np.repeat(X, 2, axis=0)  # its program is read on first use
    np.testing.assert_allclose(found.run([both])[0], right(both), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["", MANIFEST, PARAM, WEIGHTS])
def test_files_writable_by_other_users_are_not_trusted(name: str, bundle: Path) -> None:
    path = bundle / name
    path.chmod(path.stat().st_mode | 0o020)
    error = refusal(bundle)
    assert error.where == path.name and error.found == "other users may write to it"


@as_root
@pytest.mark.parametrize("name", ["", MANIFEST, PARAM])
def test_files_of_another_user_are_not_trusted(name: str, bundle: Path) -> None:
    os.chown(bundle / name, 12345, -1)
    assert refusal(bundle).found == "it belongs to another user"


# -- writing -----------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_a_bundle_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "is_unchanged", lambda: True)
    made = engine.Session(convolution(), cache=None, threads=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    with pytest.raises(BundleError, match="the target exists"):
        made.save_bundle(tmp_path / "full", replace=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "precious"]


def test_a_bundle_is_replaced_only_on_request(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "is_unchanged", lambda: True)
    made = engine.Session(convolution(seed=1), cache=None, threads=1)
    with pytest.raises(BundleError, match="the bundle exists already"):
        made.save_bundle(bundle)
    made.save_bundle(bundle, replace=True)
    np.testing.assert_allclose(session(bundle).run([X])[0], made.run([X])[0])
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]


def test_a_failed_bundle_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "is_unchanged", lambda: True)
    made = engine.Session(convolution(), cache=None, threads=1)
    for files, target in (({"../x": b""}, None), ({MANIFEST: b""}, None), ({}, "avx1024")):
        with pytest.raises(engine.EngineError):
            made.save_bundle(tmp_path / "b", files=files, target=target)
    assert not list(tmp_path.iterdir())


def test_other_users_cannot_write_to_a_bundle_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "is_unchanged", lambda: True)
    made = engine.Session(convolution(), cache=None, threads=1)
    old = os.umask(0)
    try:
        made.save_bundle(tmp_path / "b", files={"config.toml": b""})
    finally:
        os.umask(old)
    engine.load(tmp_path / "b")
