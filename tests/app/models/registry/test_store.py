"""The folder of models: what is served, what is not, and why."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from app.models.folder.repository import find_models, scan
from app.models.model import Model
from tests.app.client import serving
from tests.app.sample_models import elementwise, through, write_classifier, write_model
from tests.engine.pnnx.build import pair
from tests.patience import PATIENCE_S

ADD = elementwise("add(@0,1)", "(?,2)f32")


def served(store: Path, **settings: Any) -> dict[str, dict[str, Any]]:
    with serving(store, **settings) as client:
        return {row["name"]: row for row in client.get("/models").json()["models"]}


def ready(store: Path) -> tuple[int, str]:
    with serving(store) as client:
        response = client.get("/health/ready")
    return response.status_code, response.text


def numbers(row: dict[str, Any]) -> list[int]:
    return [version["version"] for version in row["versions"]]


def test_a_pair_without_a_config_is_a_tensor_model(tmp_path: Path) -> None:
    write_model(tmp_path, "plain", ADD)
    row = served(tmp_path)["plain"]
    assert (row["task"], row["state"], numbers(row)) == ("tensor", "ready", [1])


def test_a_pair_beside_the_folders_is_version_1(tmp_path: Path) -> None:
    path = pair(tmp_path, ADD, {})
    path.rename(tmp_path / "flat.pnnx.param")
    (tmp_path / "model.pnnx.bin").rename(tmp_path / "flat.pnnx.bin")
    row = served(tmp_path)["flat"]
    assert (row["state"], numbers(row)) == ("ready", [1])


@pytest.mark.parametrize(
    ("policy", "expected"), [("", [10]), ('versions = "latest"', [10]), ('versions = "all"', [1, 2, 10]),
                             ("versions = [10, 1]", [1, 10]), ("[versions]\nlatest = 2", [2, 10]),
                             ("[versions]\npolicy = 'all'", [1, 2, 10]), ("[versions]\nlatest = 999", [1, 2, 10]),
                             ("[versions]\npolicy = 'specific'\nspecific = [2]", [2])]
)  # fmt: skip
def test_the_policy_says_which_versions_are_served(tmp_path: Path, policy: str, expected: list[int]) -> None:
    for number in (1, 2, 10):
        write_model(tmp_path, "many", ADD, config=policy, version=number)
    assert numbers(served(tmp_path)["many"]) == expected


def test_without_a_version_the_highest_that_runs_answers(tmp_path: Path) -> None:
    for number in (1, 2):
        write_model(tmp_path, "many", elementwise(f"add(@0,{number})", "(?,2)f32"), version=number)
    write_model(tmp_path, "many", through("no.Such", "(1,2)f32"), config='versions = "all"', version=3)
    with serving(tmp_path) as client:
        answers = [client.infer("many", [[0, 0]], **which).json() for which in ({}, {"version": 1}, {"version": 3})]
        row = client.get("/models/many").json()
    assert [(answer["version"], answer["outputs"]["out0"]["data"]) for answer in answers[:2]] == [
        (2, [2, 2]),
        (1, [1, 1]),
    ]
    assert answers[2]["error"]["code"] == "not_ready"
    assert [version["state"] for version in row["versions"]] == ["ready", "ready", "failed"]


def test_a_broken_model_is_told_and_stops_no_other(tmp_path: Path) -> None:
    write_model(tmp_path, "good", ADD)
    write_model(tmp_path, "strange", through("no.Such", "(1,2)f32"))
    with serving(tmp_path) as client:
        rows = {row["name"]: row for row in client.get("/models").json()["models"]}
        readiness = client.get("/health/ready")
        good, strange = client.infer("good", [[1, 1]]), client.infer("strange", [[1, 1]])
    assert rows["strange"]["state"] == "failed" and "'no.Such' (op" in rows["strange"]["reason"]
    assert (readiness.status_code, readiness.json()["error"]["message"]) == (503, "not ready: failed to load: strange")
    assert (good.status_code, strange.status_code) == (200, 503)
    assert strange.json()["error"]["message"].startswith("model 'strange' failed to load: version 1: no layer for")


def break_param(folder: Path) -> None:
    (folder / "1" / "model.pnnx.param").write_text("7767517\n1 1\nnonsense")


def drop_param(folder: Path) -> None:
    (folder / "1" / "model.pnnx.param").unlink()


def drop_bin(folder: Path) -> None:
    (folder / "1" / "model.pnnx.bin").unlink()


def cut_bin(folder: Path) -> None:
    file = folder / "1" / "model.pnnx.bin"
    file.write_bytes(file.read_bytes()[:50])


def drop_version(folder: Path) -> None:
    (folder / "1").rename(folder / "one")


def misspell_key(folder: Path) -> None:
    (folder / "config.toml").write_text("tusk = 'tensor'")


def wrong_task(folder: Path) -> None:
    (folder / "config.toml").write_text("task = 'clasification'")


def wrong_labels(folder: Path) -> None:
    (folder / "config.toml").write_text('task = "classification"\nlabels = ["a"]')


def wrong_output(folder: Path) -> None:
    (folder / "config.toml").write_text('task = "detection"')


def wrong_version(folder: Path) -> None:
    (folder / "config.toml").write_text("versions = [7]")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (break_param, "version 1: model.pnnx.param"),
        (drop_param, "version 1: model.pnnx.param: the file does not exist"),
        (drop_bin, "version 1: model.pnnx.bin: the file does not exist"),
        (cut_bin, "version 1: model.pnnx.bin: "),
        (drop_version, "no version: expected a folder named by a number, such as shades/1/model.pnnx.param"),
        (misspell_key, "config.toml: tusk: unknown key (did you mean 'task'?)"),
        (wrong_task, "version 1: task: found 'clasification' (did you mean 'classification'?), expected 'tensor', "),
        (wrong_labels, "version 1: labels: found 1, expected 3, one for each class of the model"),
        (wrong_output, "version 1: detection.boxes: found 'out1', expected one of 'out0'"),
        (wrong_version, "version 7: model.pnnx.param: the file does not exist"),
    ],
)
def test_whatever_is_wrong_is_the_models_reason(tmp_path: Path, damage: Any, reason: str) -> None:
    write_classifier(tmp_path)
    damage(tmp_path / "shades")
    row = served(tmp_path)["shades"]
    assert row["state"] == "failed"
    assert row["reason"].startswith(reason), row["reason"]
    assert str(tmp_path) not in row["reason"]


@pytest.mark.parametrize("name", ["with space", "-dash", "é", "a" * 129, "a%2Fb"])
def test_names_that_make_bad_addresses_are_refused(tmp_path: Path, name: str) -> None:
    write_model(tmp_path, name, ADD)
    row = served(tmp_path)[name]
    assert row["state"] == "failed" and row["reason"].startswith("invalid model name")


def test_hidden_folders_and_other_files_are_no_models(tmp_path: Path) -> None:
    write_model(tmp_path, "good", ADD)
    write_model(tmp_path, ".git", ADD)
    (tmp_path / "README.md").write_text("hello")
    assert [files.name for files in scan(tmp_path)] == ["good"]


def test_a_name_that_is_a_folder_and_a_pair_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path, "twice", ADD)
    (tmp_path / "twice.pnnx.param").write_text("")
    assert served(tmp_path)["twice"]["reason"] == "found both twice/ and twice.pnnx.param"


def test_an_empty_store_is_not_ready(tmp_path: Path) -> None:
    status, text = ready(tmp_path)
    assert status == 503 and "not ready: the store has no models" in text


def test_a_missing_store_is_not_ready_and_says_so(tmp_path: Path) -> None:
    status, text = ready(tmp_path / "nowhere")
    assert status == 503
    assert "not ready: the store 'nowhere' cannot be read: No such file or directory" in text
    assert str(tmp_path) not in text


def test_models_of_dynamic_sizes_are_ready_without_a_warm_up(tmp_path: Path) -> None:
    write_model(tmp_path, "open", elementwise("add(@0,1)", "(?,?)f32"))
    assert ready(tmp_path)[0] == 200


def test_a_model_that_cannot_run_is_not_ready(tmp_path: Path) -> None:
    lines = ["pnnx.Input in0 0 1 0 #0=(2,2)f32", "Tensor.reshape bad 1 1 0 1 shape=(3,3)", "pnnx.Output out 1 0 1"]
    write_model(tmp_path, "bad", lines)
    status, _ = ready(tmp_path)
    assert status == 503


def test_while_models_load_the_server_is_live_but_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "good", ADD)
    begin = threading.Event()
    wait = lambda store, only: find_models(store, only) if begin.wait(PATIENCE_S) else []  # noqa: E731
    monkeypatch.setattr("app.models.registry.store.find_models", wait)
    with serving(tmp_path, wait=False) as client:
        live, before, refused = client.get("/health/live"), client.get("/health/ready"), client.infer("good", [[1, 1]])
        begin.set()
        client.run(client.plane.loaded.wait())
        after = client.get("/health/ready")
    assert live.json() == {"live": True}
    assert before.json()["ready"] is False and "the models are loading" in before.text
    assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
    assert after.json() == {"ready": True}


def test_a_fault_while_loading_leaves_a_server_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.models.registry.store.find_models", lambda store, only: 1 // 0)
    status, text = ready(tmp_path)
    assert status == 503 and "internal error while loading the store" in text
    assert "ZeroDivisionError" in caplog.text


def test_a_fault_in_one_model_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path, "a", ADD)
    write_model(tmp_path, "b", ADD)
    real = Model.warm_up
    monkeypatch.setattr(Model, "warm_up", lambda model, *rest: 1 // 0 if model.name == "a" else real(model, *rest))
    rows = served(tmp_path)
    assert (rows["a"]["state"], rows["b"]["state"]) == ("failed", "ready")
    assert rows["a"]["reason"] == "version 1: internal error while loading; the server's log says more"
    assert "ZeroDivisionError" in caplog.text


def test_a_contradiction_with_the_file_is_logged_with_its_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [*ADD[:1], "nn.ReLU relu 1 1 0 1 #0=(?,2)f32 #1=(?,3)f32", "pnnx.Output out 1 0 1"]
    write_model(tmp_path, "odd", lines)
    assert served(tmp_path)["odd"]["state"] == "ready"
    assert "model 'odd' version 1: relu (nn.ReLU): operand '1' is [?, 2] float32, the file says [?, 3]" in caplog.text


@pytest.mark.parametrize(("marked", "expected"), [((), None), (("b",), "b"), (("a", "b"), None)])
def test_a_model_may_say_that_it_is_the_default(tmp_path: Path, marked: tuple[str, ...], expected: str | None) -> None:
    for name in ("a", "b", "c"):
        write_model(tmp_path, name, ADD, config=f"default = {str(name in marked).lower()}")
    assert next((name for name, row in served(tmp_path).items() if row["default"]), None) == expected
