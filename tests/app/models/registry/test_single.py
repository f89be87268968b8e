"""A store that is one model by itself, under a name that the settings give: ``model_name``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.errors import ConfigError
from app.models.folder.repository import find_model, find_models, scan
from tests.app.client import serving
from tests.app.models.registry.test_watch import LINES, answer, notice, row, weights
from tests.app.sample_models import write_model
from tests.engine.pnnx.build import param


def write(folder: Path, value: int, name: str = "any") -> None:
    (folder / f"{name}.pnnx.param").write_bytes(param(LINES))
    (folder / f"{name}.pnnx.bin").write_bytes(weights(value))


@pytest.mark.parametrize("name", ["any", "m", "model"])
def test_a_bare_pair_is_served_under_the_given_name_and_with_the_config_beside_it(tmp_path: Path, name: str) -> None:
    write(tmp_path, 2, name)
    (tmp_path / "config.toml").write_text("threads = 1")
    with serving(tmp_path, model_name="m", reload_interval_s=0) as client:
        assert answer(client) == 2 and [each["name"] for each in client.get("/models").json()["models"]] == ["m"]
        assert client.post("/infer", json={"inputs": [[1, 1]]}).json()["model"] == "m"
        assert row(client)["versions"][0]["threads"] == 1
        write(tmp_path / ".", 5, name)
        notice(client)
        assert answer(client) == 5
        assert client.post("/v2/repository/models/m/load").status_code == 200
        assert client.post("/v2/repository/models/other/load").status_code == 404


def test_folders_of_versions_are_versions_of_the_one_model(tmp_path: Path) -> None:
    for number in (1, 2):
        write_model(tmp_path.parent, tmp_path.name, LINES, version=number)
        (tmp_path / str(number) / "model.pnnx.bin").write_bytes(weights(number))
    with serving(tmp_path, model_name="m", reload_interval_s=0) as client:
        assert answer(client) == 2


def test_an_empty_folder_says_what_it_should_hold_and_is_served_once_it_does(tmp_path: Path) -> None:
    with serving(tmp_path, model_name="m", reload_interval_s=0) as client:
        told = client.get("/health/ready")
        assert told.status_code == 503 and "failed to load: m" in told.text
        assert "waiting for files: expected a folder" in row(client)["reason"]
        notice(client)
        write(tmp_path, 3)
        notice(client)
        assert answer(client) == 3


def test_two_pairs_are_one_too_many(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, 1, name)
    (found,) = scan(tmp_path, "m")
    assert found.problem == "found 2 pairs, expected one: 'a', 'b'"


def test_a_pair_without_a_folder_of_its_version_is_version_1_of_a_model_of_a_store(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    write(tmp_path / "m", 4)
    with serving(tmp_path, reload_interval_s=0) as client:
        assert answer(client) == 4
        os.replace(tmp_path / "m/any.pnnx.param", tmp_path / "m/other.pnnx.param")
        os.replace(tmp_path / "m/any.pnnx.bin", tmp_path / "m/other.pnnx.bin")
        notice(client)
        assert answer(client) == 4


def test_a_name_that_is_none_is_refused_and_others_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="invalid model name"):
        find_models(tmp_path, "../m")
    assert find_model(tmp_path, "other", "m") is None and find_model(tmp_path, "m", "m") is not None
