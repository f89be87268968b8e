"""``compile --bundle``: a folder that every verb, and a store, takes as a model."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from app.models.folder.repository import scan
from app.models.sessions import open_session, read_graph
from app.settings import Settings
from tests.app.text_models import write_text_model


@pytest.fixture
def bundle(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a bundle of the model ``brightness`` with its config."""
    monkeypatch.setenv("PNNX_SERVE_CACHE_DIR", str(tmp_path / "cache"))
    for room in ("builder", "bundling.writing"):
        monkeypatch.setattr(f"engine.compiler.{room}.is_unchanged", lambda: True)
    assert main(["compile", "brightness", "--bundle", "bright", "--batch", "1", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" · ")[0] for line in lines] == ["brightness", "brightness", "bright"]
    assert lines[-1] == "bright · bundle with 2 programs for machines such as this one"
    return tmp_path / "bright"


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(list(argv))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_bundle_is_run_by_its_path_with_its_config(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.full((1, 1, 2, 2), 255, np.float32))
    shutil.rmtree("model_store")
    status, out, error = told(capsys, "run", "bright", "--input", "x.npy")
    assert (status, error) == (0, "") and "bright" in out
    assert told(capsys, "check", "bright") == (0, "bright: ok\n", "")


@pytest.mark.parametrize("place", ["model_store/net", "model_store/net/3"])
def test_a_store_serves_a_bundle_as_a_model_or_a_version(
    place: str, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(bundle, place)
    (found,) = [files for files in scan(Path("model_store")) if files.name == "net"]
    (version,) = found.versions
    assert version.bundle == Path(place)
    assert found.config.task == ("classification" if place.endswith("net") else "tensor")
    for bundles in (True, False):
        settings = Settings(store=Path("model_store"), bundles=bundles, cache=False)
        assert (read_graph(version, settings).bundle is not None) == bundles
    session = open_session(read_graph(version, Settings()), Settings(cache=False), 1)
    session.prepare()
    assert session.describe()["compiler"]["is_cached"] is True
    assert told(capsys, "check", "net") == (0, "net: ok\n", "")


def test_a_bundle_of_a_text_model_has_its_tokenizer_hooks_and_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.compiler.bundling.writing.is_unchanged", lambda: True)
    version = write_text_model(tmp_path / "model_store", "embedding", name="words") / "1"
    (version / "hooks.py").write_text("def postprocess(answer):\n    return {}\n", encoding="utf-8")
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    np.savez(version / "warmup.npz", **dict.fromkeys(inputs, np.ones((1, 3), np.int64)))
    plugins = ["--plugins", "hooks.py"]
    shapes = ["--shape", "1,5"] * 3
    status, _, error = told(capsys, "compile", "words", *shapes, "--bundle", "model_store/copy", *plugins)
    assert (status, error) == (0, "")
    for name in ("tokenizer.json", "hooks.py", "warmup.npz"):
        assert (Path("model_store/copy") / name).read_bytes() == (version / name).read_bytes()
    shutil.rmtree("model_store/words")
    assert told(capsys, "check", "copy", *plugins) == (0, "copy: ok\n", "")


def test_check_says_what_becomes_of_other_shapes_where_there_is_no_compiler(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.policies.has_llvm", lambda: False)
    status, out, _ = told(capsys, "check", "bright")
    assert status == 0
    first, second = out.splitlines()
    shapes = "[1, 1, 2, 2]; [4, 1, 2, 2]"
    assert first == f"bright: warning: other shapes than {shapes} run on the reference: llvmlite is not installed"
    assert second == "bright: ok"


def test_a_damaged_one_is_told_of_by_check_and_not_run(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program, *_) = bundle.glob("*.blueprint")
    program.write_bytes(program.read_bytes()[:-1])
    status, out, _ = told(capsys, "check", "bright")
    assert status == 1 and f"error: {program.name}: the file is truncated" in out
    status, _, error = told(capsys, "run", "bright", "--input", "x.npy")
    assert status == 1 and program.name in error


def test_shapes_may_be_named_for_several_programs(
    bundle: Path, capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    argv = ["compile", "linear", "--bundle", "oci:layout", "--shape", "2,3", "--shape", "5,3"]
    status, out, error = told(capsys, *argv, "--target", "sse")
    assert (status, error) == (0, "")
    assert out.splitlines()[-1] == "layout · OCI layout, tag latest with 3 programs for every machine with sse"
    assert Path("layout/oci-layout").is_file()


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["linear", "difference", "--bundle", "b"], "--bundle: found 2 models, expected one"),
        (["linear", "--oci"], "--oci and --target: found without --bundle"),
        (["linear", "--target", "sse"], "--oci and --target: found without --bundle"),
        (["linear", "--bundle", "b", "--shape", "1,3", "--batch", "2"], "--shape and --batch"),
        (["linear", "--bundle", "model_store"], "the target exists"),
        (["linear", "--bundle", "bright"], "the bundle exists already, expected permission to replace it (--force)"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    argv: list[str], problem: str, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, error = told(capsys, "compile", *argv)
    assert status in (1, 2) and problem in error
