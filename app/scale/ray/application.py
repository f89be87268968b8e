"""Ray Serve application: one deployment for the store, and one for each model with its own options."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from app.models.folder.layout import NAME_RULE, is_model_name
from app.scale.ray.options import ModelOptions, Options
from app.settings import Settings, SettingsError

NAME: Final = "pnnx-serve"
# Settings that Ray decides: address, number of processes, TLS.
OF_RAY: Final = ("store", "host", "port", "grpc_port", "workers", "tls_certificate", "tls_key", "tls_client_ca")
_HEALTH_S: Final = 5.0
# Options with the same names in Ray.
_SCALING: Final = (
    "min_replicas", "max_replicas", "target_ongoing_requests", "upscale_delay_s", "downscale_delay_s",
    "look_back_period_s",
)  # fmt: skip
OLDEST: Final = (2, 60)


def build(store: str | Path | Mapping[str, Any] | Options) -> Any:
    """Return an application that serves a store: ``serve.run(build("/models"))``.

    Args:
        store: options, or the store alone. Ray passes the ``args`` of its config file, as one argument.

    Returns:
        A ``ray.serve.Application``.

    Raises:
        SettingsError: Ray is missing or too old, or a setting is invalid.
        pydantic.ValidationError: the options are invalid.
    """
    check_ray()
    options = _options(store)
    settings = make_settings(options)
    from app.scale.ray.deployments import model_deployment, store_deployment  # imports Ray

    shares = {name: model_deployment(name, settings, share, placement(share)) for name, share in options.models.items()}
    return store_deployment(NAME, settings, options, placement(options), shares)


def _options(store: str | Path | Mapping[str, Any] | Options) -> Options:
    if isinstance(store, Options):
        return store
    return Options.model_validate({"store": str(store)} if isinstance(store, str | Path) else dict(store))


def make_settings(options: Options) -> Settings:
    """Return the settings of every replica.

    Raises:
        SettingsError: a setting is invalid, or decided by Ray.
    """
    wrong = [name for name in options.settings if name in OF_RAY]
    if wrong:
        raise SettingsError(f"settings: {', '.join(wrong)}: that is for Ray to decide, see docs/scaling.md")
    for name in options.models:
        if not is_model_name(name):
            raise SettingsError(f"models: found an invalid name, expected {NAME_RULE}")
    # One thread per core of the replica, which Ray reserves.
    given = {"threads": max(1, math.floor(options.cpus)), **options.settings}
    found = Settings.from_env(**given, store=options.store)
    return found.model_copy(update={"workers": 1, "grpc_port": None, "shared_memory": False})


def placement(share: ModelOptions) -> dict[str, Any]:
    """Return the deployment options for Ray."""
    resources: dict[str, Any] = {"num_cpus": share.cpus}
    if share.memory_bytes is not None:
        resources["memory"] = share.memory_bytes
    options: dict[str, Any] = {
        "ray_actor_options": resources,
        "max_ongoing_requests": share.max_ongoing_requests,
        "graceful_shutdown_timeout_s": share.grace_s,
        "graceful_shutdown_wait_loop_s": 0.1,
        "health_check_period_s": _HEALTH_S,
    }
    if share.replicas is not None:
        return {**options, "num_replicas": share.replicas}
    return {**options, "autoscaling_config": {name: getattr(share, name) for name in _SCALING}}


def check_ray() -> str:
    """Return the version of Ray.

    Raises:
        SettingsError: Ray is missing or too old.
    """
    expected = ".".join(map(str, OLDEST))
    try:
        found = version("ray")
    except PackageNotFoundError:
        raise SettingsError("Ray is not installed: pip install 'pnnx-serve[ray]'") from None
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if numbers < OLDEST:
        raise SettingsError(f"Ray {found} is too old, expected {expected} or newer: pip install -U 'pnnx-serve[ray]'")
    return found
