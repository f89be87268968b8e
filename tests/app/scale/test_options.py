"""Tests of the options of a deployment, without Ray."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.scale.ray import ModelOptions, Options, application
from app.scale.ray.application import make_settings, placement
from app.settings import SettingsError


def test_numpy_is_imported_after_the_threads_of_a_replica_are_settled() -> None:
    code = (
        "import sys; from types import ModuleType; sys.modules['ray'] = ray = ModuleType('ray'); "
        "ray.serve = ModuleType('ray.serve'); import app.scale.ray.deployments; sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_replica_has_as_many_threads_as_cores_and_nothing_of_its_own_socket() -> None:
    settings = make_settings(Options(store="/models", cpus=2.5, settings={"max_queue": 3}))
    assert (settings.threads, settings.max_queue, settings.workers) == (2, 3, 1)
    assert make_settings(Options(store="/models", cpus=0.25)).threads == 1
    assert make_settings(Options(store="/models", settings={"threads": 7})).threads == 7


@pytest.mark.parametrize("name", ["store", "host", "port", "grpc_port", "workers", "tls_key"])
def test_settings_that_ray_decides_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"settings: {name}: that is for Ray to decide"):
        make_settings(Options(store="/models", settings={name: "1"}))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"store": "x", "replica": 1},
        {"store": "x", "replicas": 0},
        {"store": "x", "cpus": 0},
        {"store": "x", "min_replicas": 3, "max_replicas": 2},
        {"store": "x", "models": {"digits": {"replicas": -1}}},
        {"store": "x", "models_per_replica": 0},
    ],
)
def test_options_that_are_none_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Options.model_validate(given)


def test_a_setting_or_model_name_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="max_queue"):
        make_settings(Options(store="/models", settings={"max_queue": -1}))
    with pytest.raises(SettingsError, match="an invalid name"):
        make_settings(Options(store="/models", models={"../up": ModelOptions()}))


def test_a_number_of_replicas_is_kept_and_a_range_follows_requests_that_wait_and_run() -> None:
    assert placement(ModelOptions(replicas=3))["num_replicas"] == 3
    told = placement(ModelOptions(min_replicas=0, max_replicas=9, target_ongoing_requests=4, cpus=2, memory_bytes=5))
    assert told["autoscaling_config"] == {
        "min_replicas": 0,
        "max_replicas": 9,
        "target_ongoing_requests": 4,
        "upscale_delay_s": 10.0,
        "downscale_delay_s": 300.0,
        "look_back_period_s": 30.0,
    }
    assert told["ray_actor_options"] == {"num_cpus": 2, "memory": 5}


@pytest.mark.parametrize(
    "found, why",
    [
        (None, r"Ray is not installed: pip install 'pnnx-serve\[ray\]'"),
        ("2.9.3", "Ray 2.9.3 is too old, expected 2.60"),
    ],
)
def test_a_ray_that_is_missing_or_too_old_is_told(found: str | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(application, "version", installed)
    with pytest.raises(SettingsError, match=why):
        application.build(Path("/models"))


def test_new_and_newer_rays_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ("2.60.0", "2.61.0rc1", "3.0.0"):
        monkeypatch.setattr(application, "version", lambda name, found=found: found)
        assert application.check_ray() == found
