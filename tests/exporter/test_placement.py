"""A pair put into a store: versions, names, the config to fill in."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import engine
from exporter.errors import ExportError
from exporter.placement import config_text, model_name, place
from tests.engine.graph.build import built, op


def graph(*shape: int | None) -> engine.RuntimeGraph:
    return built(
        op("pnnx.Input", "in0", "", "0"),
        op("nn.ReLU", "relu", "0", "1"),
        op("pnnx.Output", "out0", "1"),
        _0=shape,
    )


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    folder = tmp_path / "pair"
    folder.mkdir()
    graph(1, 3).save(folder / "model.pnnx.param", folder / "model.pnnx.bin")
    return folder


def test_the_first_pair_becomes_version_1_with_a_config(pair: Path, tmp_path: Path) -> None:
    version = place(pair, tmp_path / "store", "net", graph(1, 3))
    assert version == tmp_path / "store/net/1"
    assert sorted(file.name for file in version.iterdir()) == ["model.pnnx.bin", "model.pnnx.param"]
    assert engine.load(version / "model.pnnx.param").name == "model"
    assert tomllib.loads((tmp_path / "store/net/config.toml").read_text()) == {"task": "tensor"}


def test_another_pair_becomes_the_next_version_and_the_config_stays(pair: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    place(pair, store, "net", graph(1, 3))
    (store / "net/config.toml").write_text("task = 'classification'")
    assert place(pair, store, "net", graph(1, 3)) == store / "net/2"
    assert (store / "net/config.toml").read_text() == "task = 'classification'"
    assert sorted(entry.name for entry in store.iterdir()) == ["net"]


def test_nothing_is_left_of_a_pair_that_cannot_be_copied(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(OSError, match="No such file"):
        place(tmp_path / "nothing", store, "net", graph(1, 3))
    assert [entry.name for entry in store.rglob("*")] == ["net"]


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../up", "a b"])
def test_what_is_no_name_is_refused(name: str, pair: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="invalid name of a model"):
        place(pair, tmp_path / "store", name, graph(1, 3))


@pytest.mark.parametrize(("shape", "words"), [
    ((1, 3, 32, 48), ["# size = [32, 48]", '# color = "rgb"', "# mean = [0.485, 0.456, 0.406]"]),
    ((None, 1, None, None), ["[?, 1, ?, ?] float32", "# size = [224, 224]", '# color = "grey"', "# std = [0.5]"]),
])  # fmt: skip
def test_the_config_says_what_a_model_of_pictures_needs(shape: tuple[int | None, ...], words: list[str]) -> None:
    text = config_text("net", graph(*shape))
    assert [word for word in words if word not in text] == []


def test_what_the_config_suggests_is_a_config(tmp_path: Path) -> None:
    from app.models.folder.config import read_config

    lines = config_text("net", graph(1, 3, 32, 48)).splitlines()
    suggested = [line.removeprefix("# ") for line in lines if line.startswith("# ") and (" = " in line or "[" in line)]
    (tmp_path / "config.toml").write_text("\n".join(suggested[1:]))
    config = read_config(tmp_path)
    assert (config.task, config.preprocess.size, config.preprocess.std) == (
        "classification",
        (32, 48),
        (0.229, 0.224, 0.225),
    )


def test_other_inputs_get_a_config_without_pictures() -> None:
    assert "[preprocess]" not in config_text("net", graph(1, 3))


@pytest.mark.parametrize(("source", "name"), [
    ("model.py", "model"), ("nets/resnet-18.pt", "resnet-18"), ("model.py:MyNet", "mynet"), ("a b.pt", "a_b"),
    ("package.module:Net", "net"), ("/x/_private.py", "private"), ("net.torchscript", "net"),
])  # fmt: skip
def test_a_model_is_named_after_its_class_or_file(source: str, name: str) -> None:
    assert model_name(source) == name
