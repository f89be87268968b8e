"""Operators of the user's own, from a Python file or module that the settings name."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from app.cli import main
from app.models.folder.plugins import load_plugins
from app.settings import Settings, SettingsError
from tests.app.client import serving
from tests.app.environment import environment
from tests.app.sample_models import elementwise, through, write_model

ROOT = Path(__file__).parents[4]
PLUGIN = str(ROOT / "examples/custom_operator.py")
TWICE = """
import engine

@engine.register("test.Twice")
class Twice(engine.Layer):
    "2x"

    def infer(self, input):
        return input

    def forward(self, input):
        return input * 2
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Undo the registrations of plugins after each test."""
    before = set(sys.modules)
    with engine.registry.extended():
        yield
    for name in set(sys.modules) - before:
        if name.startswith("pnnx_serve_plugin_"):
            del sys.modules[name]


@pytest.fixture
def sub(tmp_path: Path) -> dict[str, np.ndarray]:
    """A model in the store with a module kept as one operator; recorded inputs and PyTorch's answers."""
    folder = tmp_path / "model_store/sub/1"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(ROOT / "tests/data/plugins/sub.zip") as pack:
        pack.extractall(folder)
    with np.load(folder / "reference.npz") as recorded:
        return dict(recorded)


@pytest.fixture
def twice(tmp_path: Path) -> str:
    (tmp_path / "twice.py").write_text(TWICE)
    return str(tmp_path / "twice.py")


def test_a_model_with_a_users_operator_is_served_with_pytorchs_answers(
    sub: dict[str, np.ndarray], tmp_path: Path
) -> None:
    with serving(tmp_path / "model_store", plugins=(PLUGIN,)) as client:
        answer = client.infer("sub", {"in0": sub["in_0"].tolist(), "in1": sub["in_1"].tolist()}).json()
    for name, key in (("out0", "out_0"), ("out1", "out_1")):
        np.testing.assert_allclose(answer["outputs"][name]["data"], sub[key].ravel(), rtol=1e-5, atol=1e-6)


def test_without_the_plugin_the_operator_is_named(sub: dict[str, np.ndarray], tmp_path: Path) -> None:
    with serving(tmp_path / "model_store") as client:
        problem = client.get("/models/sub").text
    assert "no layer for 1 operator type: 'custom_operator_model.Sub' (sub" in problem


def test_the_command_line_takes_plugins(
    sub: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    reference = "model_store/sub/1/reference.npz"
    assert main(["check", "sub"]) == 1
    for argv in (["check", "sub"], ["graph", "sub"], ["compare", "sub", "--reference", reference]):
        assert main([*argv, "--plugin", PLUGIN]) == 0
    assert "custom_operator_model.Sub" in capsys.readouterr().out


def test_plugins_come_from_the_environment_by_comma(twice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.from_env({"PNNX_SERVE_PLUGINS": f"{twice}, {PLUGIN}"})
    assert settings.plugins == (twice, PLUGIN)
    assert Settings.from_env(environment(settings)) == settings


def test_a_flag_may_be_repeated(
    twice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model_store", "double", through("test.Twice", "(1,2)f32"))
    assert main(["check", "double", "--plugin", PLUGIN, "--plugin", twice]) == 0
    assert {"test.Twice", "custom_operator_model.Sub"} <= set(engine.registry)


def test_a_module_is_imported_by_its_name(twice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(twice).parent))
    load_plugins(["twice"])
    assert "test.Twice" in engine.registry
    del sys.modules["twice"]


def test_a_file_is_loaded_once_however_it_is_spelt(twice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(twice).parent)
    load_plugins([twice, "twice.py", "./twice.py"])
    load_plugins([twice])
    assert "test.Twice" in engine.registry


@pytest.mark.parametrize(("text", "reason"), [
    ("1 / 0", "ZeroDivisionError: division by zero"),
    ("def", "SyntaxError: invalid syntax"),
    ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    (TWICE.replace("test.Twice", "nn.ReLU"), "ParameterError: nn.ReLU: operator type is registered already"),
])  # fmt: skip
def test_a_plugin_that_fails_is_named_with_the_reason(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    for _ in range(2):  # a failure is not taken for a success the second time
        with pytest.raises(SettingsError) as caught:
            load_plugins([str(path)])
        assert str(caught.value).startswith(f"plugin '{path}' cannot be loaded: {reason}")


@pytest.mark.parametrize(("plugin", "reason"), [
    ("nothing.py", "No such file or directory"),
    ("some/folder/nothing", "ImportError: not a Python file"),
    ("nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
])  # fmt: skip
def test_a_missing_plugin_is_a_wrong_call(plugin: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "m", "--plugin", plugin]) == 2
    assert f"plugin '{plugin}' cannot be loaded: {reason}" in capsys.readouterr().err


def test_nothing_in_a_models_folder_is_ever_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    for folder in (tmp_path, tmp_path / "one", tmp_path / "one/1"):
        for name in ("plugin.py", "plugins.py", "__init__.py", "model.py", "model_pnnx.py"):
            (folder / name).write_text(f"raise SystemExit('{name} was run')")
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path) as client:
        answer: dict[str, Any] = client.infer("one", [[1.0, 2.0]]).json()
    assert answer["outputs"]["out0"]["data"] == [2, 3]
