"""Tests of the number of replicas, the models that each holds, and routing among them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.app.scale.conftest import Deployed, answer, deployed, load
from tests.patience import until

pytestmark = pytest.mark.slow


def running(deployment: str = "pnnx-serve") -> dict[str, int]:
    """Replicas by their states."""
    from ray import serve

    found = serve.status().applications["tested"].deployments[deployment].replica_states
    return {str(getattr(state, "value", state)): count for state, count in found.items()}


def told(client: Deployed, family: str) -> dict[str, float]:
    """Return the metrics of each replica by its name."""
    found: dict[str, float] = {}
    for labels, value in re.findall(rf"^{family}\{{(.*)\}} (\S+)$", client.get("/metrics").text, re.M):
        name = re.findall(r'worker="(.*?)"', labels)[0]
        found[name] = found.get(name, 0.0) + float(value)
    return found


def test_load_brings_a_second_replica_and_rest_takes_it_away_and_no_request_is_lost(ray_url: str, store: Path) -> None:
    from app.scale.ray import Options

    quick = {"upscale_delay_s": 0.5, "downscale_delay_s": 1.0, "look_back_period_s": 1.0}
    options = Options(store=str(store), cpus=0.5, max_replicas=2, target_ongoing_requests=1.5, **quick)  # type: ignore[arg-type]
    with deployed(ray_url, options) as client:
        assert running() == {"RUNNING": 1}
        # Six at once wait or run all the time; then one does, which one replica has enough of.
        with load(client, "a") as rest:
            with load(client, *"aabbcc") as many:
                until(lambda: running() == {"RUNNING": 2})
            until(lambda: running() == {"RUNNING": 1})
        statuses = [each for found in (rest, many) for every in found.values() for each in every]
        assert set(statuses) == {200} and len(many["b"]) > 10


def test_a_model_may_have_no_replica_until_it_is_asked_for(ray_url: str, store: Path) -> None:
    from app.scale.ray import ModelOptions, Options

    own = {"a": ModelOptions(min_replicas=0, max_replicas=2, cpus=0.5, upscale_delay_s=0)}
    with deployed(ray_url, Options(store=str(store), replicas=2, cpus=0.5, models=own)) as client:
        assert (running(), running("model-a")) == ({"RUNNING": 2}, {})
        assert client.infer("a", [[0, 0]]).status_code == 200
        assert running("model-a") == {"RUNNING": 1}


def test_requests_that_name_their_model_go_to_the_replica_that_holds_it(ray_url: str, store: Path) -> None:
    from app.scale.ray import Options

    def ask(client: Deployed, name: str, headers: dict[str, str]) -> None:
        assert client.post(f"/models/{name}/infer", json={"inputs": [[0, 0]]}, headers=headers).status_code == 200

    with deployed(ray_url, Options(store=str(store), replicas=2, cpus=0.5, models_per_replica=1)) as client:

        def loads(*, is_named: bool) -> float:
            """Models that were loaded for ten requests for each of two."""
            before = sum(told(client, "pnnx_serve_programs_total").values())
            for _ in range(10):
                for name in "ab":
                    ask(client, name, {"serve_multiplexed_model_id": name} if is_named else {})
            return sum(told(client, "pnnx_serve_programs_total").values()) - before

        # Ray hears of what a replica holds a moment after it does. From then on each holds one, and nothing is loaded.
        until(lambda: loads(is_named=True) == 0)
        # Without the model id a request goes to a random replica, which has to load the model.
        assert loads(is_named=False) > 0


def test_another_revision_of_a_model_replaces_its_replicas_and_no_others(ray_url: str, store: Path) -> None:
    from ray import serve

    from app.scale.ray import ModelOptions, Options, build

    def options(revision: str) -> Any:
        own = {"a": ModelOptions(replicas=2, cpus=0.5, revision=revision)}
        return Options(store=str(store), replicas=1, cpus=0.5, models=own)

    with deployed(ray_url, options("1")) as client:
        before = told(client, "pnnx_serve_uptime_seconds")
        with load(client, "a", "b") as statuses:
            serve.run(build(options("2")), name="tested")
        after = told(client, "pnnx_serve_uptime_seconds")
        assert answer(client, "b") == 1.0
    assert {name: set(each) for name, each in statuses.items()} == {"a": {200}, "b": {200}}
    # Two replicas are others, and the one that has all other models is who it was.
    assert (len(before), len(after), len(before.keys() & after.keys())) == (3, 3, 1)
