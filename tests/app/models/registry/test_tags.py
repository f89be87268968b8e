"""Version tags: accepted wherever a version number is, and never of a version that cannot be requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, write_model

SHAPE = "(?,2)f32"
TAGS = '[tags]\nstable = 1\ncanary = 2\n[versions]\npolicy = "all"\n'


def write(store: Path, version: int, config: str | None = None) -> None:
    write_model(store, "m", elementwise(f"add(@0,{version})", SHAPE), config=config, version=version)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for version in (1, 2, 3):
        write(tmp_path, version, TAGS)
    return tmp_path


@pytest.fixture
def client(store: Path) -> Iterator[Client]:
    with serving(store, reload_interval_s=0, backend="reference", cache=False) as client:
        look(client)
        yield client


def look(client: Client) -> None:
    for _ in range(3):
        client.plane.watcher.look()
        client.plane.store._loaders.wait()


def set_tags(store: Path, client: Client, tags: str) -> None:
    (store / "m" / "config.toml").write_text(f'{tags}\n[versions]\npolicy = "all"\n')
    look(client)


def answered(client: Client, version: object) -> int:
    """The version that answers a request for this one; the status where none does."""
    answer = client.infer("m", [[0, 0]], version=version)
    return int(answer.json()["version"]) if answer.status_code == 200 else answer.status_code


def row(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/models/m").json()
    return found


def ways(client: Client, version: str) -> list[httpx.Response]:
    """A request for a version by every way there is to name one."""
    v2 = {"inputs": [{"name": "in0", "datatype": "FP32", "shape": [1, 2], "data": [0, 0]}]}
    return [
        client.infer("m", [[0, 0]], version=version),
        client.post(f"/infer?model=m&version={version}", json={"inputs": [[0, 0]]}),
        client.post(f"/models/m/infer?version={version}", json={"inputs": [[0, 0]]}),
        client.post(f"/v2/models/m/versions/{version}/infer", json=v2),
        client.get(f"/v2/models/m/versions/{version}"),
        client.get(f"/v2/models/m/versions/{version}/ready"),
        client.get(f"/v2/models/m/versions/{version}/config"),
        client.get(f"/v2/models/m/versions/{version}/stats"),
        client.get(f"/models/m/graph?version={version}"),
        client.get(f"/graph?model=m&version={version}"),
    ]


def test_a_tag_may_stand_wherever_a_number_may(client: Client) -> None:
    for tag, number in (("stable", 1), ("canary", 2)):
        answers = ways(client, tag)
        assert [answer.status_code for answer in answers] == [200] * len(answers)
        bodies = [answer.json() for answer in answers]
        assert [body["version"] for body in bodies[:3]] == [number] * 3
        assert bodies[3]["model_version"] == str(number) and bodies[3]["outputs"][0]["data"] == [number] * 2
        assert bodies[7]["model_stats"][0]["version"] == str(number)
        assert [body["version"] for body in bodies[8:]] == [number] * 2
    assert row(client)["tags"] == {"stable": 1, "canary": 2}
    assert client.get("/models").json()["models"][0]["tags"] == {"stable": 1, "canary": 2}
    assert client.get("/v2/models/m/config").json()["parameters"]["tag.canary"] == {"string_value": "2"}


def test_an_unknown_tag_is_not_found(client: Client) -> None:
    answers = ways(client, "beta")
    assert {answer.status_code for answer in answers} == {404}
    assert "canary" in answers[0].json()["error"]["message"]


@pytest.mark.parametrize("version", ["", "0", "01x", "-1", "1.5", "..", "a" * 65, "a b", "ä", "%00"])
def test_what_is_neither_number_nor_tag_is_refused(client: Client, version: str) -> None:
    assert client.post(f"/models/m/infer?version={version}", json={"inputs": [[0, 0]]}).status_code == 400


@pytest.mark.parametrize("version", [True, 1.5, [1], {"a": 1}, 10**400])
def test_versions_of_other_kinds_are_refused(client: Client, version: object) -> None:
    assert answered(client, version) == 400


def test_a_tag_moves_to_a_version_that_serves_and_stays_where_it_was_until_then(store: Path, client: Client) -> None:
    set_tags(store, client, "tags = {stable = 1, canary = 3}")
    assert (answered(client, "canary"), row(client)["reason"]) == (3, None)
    set_tags(store, client, "tags = {stable = 1, canary = 4}")
    assert answered(client, "canary") == 3
    assert row(client)["reason"] == "tag 'canary': version 4 is not served, it stands for version 3 still"
    assert row(client)["state"] == "ready" and row(client)["tags"] == {"stable": 1, "canary": 3}
    (store / "m" / "4" / "1").mkdir(parents=True)
    look(client)
    assert answered(client, "canary") == 3
    (store / "m" / "4" / "1").rmdir()
    (store / "m" / "4").rmdir()
    write(store, 4)
    look(client)
    assert (answered(client, "canary"), row(client)["reason"]) == (4, None)
    set_tags(store, client, "tags = {stable = 1}")
    assert answered(client, "canary") == 404


def test_a_tag_of_a_version_that_never_served_stands_for_nothing_and_says_so(store: Path) -> None:
    (store / "m" / "config.toml").write_text("[tags]\nstable = 1\nnew = 3\n")
    with serving(store, reload_interval_s=0, backend="reference", cache=False) as client:
        assert answered(client, "new") == 3
        answer = client.infer("m", [[0, 0]], version="stable")
        assert answer.status_code == 404 and "version 1 is not served" in answer.json()["error"]["message"]
        assert "stands for nothing" in row(client)["reason"] and client.get("/health/ready").status_code == 200


def test_tags_survive_a_load_on_demand_and_go_with_an_unload(store: Path, client: Client) -> None:
    def call(verb: str) -> int:
        return client.post(f"/v2/repository/models/m/{verb}").status_code

    assert call("load") == 200 and answered(client, "canary") == 2
    (store / "m" / "config.toml").write_text(TAGS.replace("canary = 2", "canary = 9"))
    assert call("load") == 200 and answered(client, "canary") == 2
    assert call("unload") == 200 and answered(client, "canary") == 404
    assert call("load") == 200 and (answered(client, "canary"), answered(client, "stable")) == (404, 1)
