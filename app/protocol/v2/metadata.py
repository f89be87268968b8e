"""Metadata of the server and its models, and messages of the model repository extension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.errors import RefusedError
from app.messages import brief, cut, quoted
from app.models.model import Model
from app.models.registry.store import Store
from app.models.registry.version import Entry, State, Version
from app.protocol.v2.ports import WirePort, config_name, wire_ports
from app.version import version as program_version

NAME: Final = "pnnx-serve"
PLATFORM: Final = "pnnx_pnnx"
EXTENSIONS: Final = (
    "binary_tensor_data", "classification", "model_configuration", "model_repository",
    "model_repository(unload_dependents)", "parameters", "schedule_policy", "statistics", "trace", "logging", "graph",
)  # fmt: skip
# Clients expect a number, though batches are limited by memory only.
MAX_BATCH: Final = 1024

_STATES: Final = {
    State.READY: "READY", State.LOADING: "LOADING", State.FAILED: "UNAVAILABLE", State.UNLOADED: "UNAVAILABLE",
}  # fmt: skip


def server_metadata(*, has_memory: bool = False) -> dict[str, Any]:
    """Return name, version and extensions; has_memory: whether clients may register shared memory."""
    extensions = [*EXTENSIONS, *(["system_shared_memory"] if has_memory else [])]
    return {"name": NAME, "version": program_version(), "extensions": extensions}


def model_metadata(entry: Entry, model: Model) -> dict[str, Any]:
    """Return inputs and outputs with full shapes, and the versions that are ready."""
    ports = wire_ports(model)
    ready = [str(each.number) for each in entry.versions if each.state is State.READY]
    return {
        "name": entry.name,
        "versions": ready,
        "platform": PLATFORM,
        "inputs": [_tensor(port) for port in ports.inputs],
        "outputs": [_tensor(port) for port in ports.outputs],
    }


def model_config(entry: Entry, version: Version, model: Model) -> dict[str, Any]:
    """Return Triton's ModelConfig, as far as it applies."""
    ports = wire_ports(model)
    labels = {} if model.labels is None else {"label_filename": "labels.txt"}
    return {
        "name": entry.name,
        "platform": PLATFORM,
        "backend": "pnnx",
        "version_policy": _policy(entry),
        "max_batch_size": MAX_BATCH if ports.takes_batches else 0,
        "input": [_configured(port, ports.takes_batches) for port in ports.inputs],
        "output": [{**_configured(port, ports.takes_batches), **labels} for port in ports.outputs],
        "instance_group": [{"name": entry.name, "kind": "KIND_CPU", "count": version.scheduler.runs}],
        **_batching(model),
        "response_cache": {"enable": model.response_cache is not None},
        "parameters": {**_parameters(entry), **_size_names([*ports.inputs, *ports.outputs])},
    }


def _batching(model: Model) -> dict[str, Any]:
    """Return the batching table if requests share runs; clients rely on it."""
    batcher = model.batcher
    if not batcher.verdict.enabled:
        return {}
    return {
        "dynamic_batching": {
            "preferred_batch_size": [size for size in batcher.sizes if size > 1],
            "max_queue_delay_microseconds": batcher.config.max_queue_delay_us,
        }
    }


def repository_index(store: Store, *, only_ready: bool) -> list[dict[str, str]]:
    """Return a row for each version of each model; one for a model without versions."""
    rows = [row for entry in store.entries for row in _rows(entry)]
    return [row for row in rows if row["state"] == "READY" or not only_ready]


def _rows(entry: Entry) -> Sequence[dict[str, str]]:
    if entry.unloaded is not None:
        state = "UNLOADING" if entry.is_draining else "UNAVAILABLE"
        numbers = [str(number) for number in entry.unloaded] or [""]
        return [{"name": entry.name, "version": each, "state": state, "reason": entry.reason or ""} for each in numbers]
    if not entry.versions:
        state = "LOADING" if entry.files.problem is None else "UNAVAILABLE"
        return [{"name": entry.name, "version": "", "state": state, "reason": entry.files.problem or ""}]
    return [
        {
            "name": entry.name,
            "version": str(each.number),
            "state": _STATES[each.state],
            "reason": each.reason or "",
        }
        for each in entry.versions
    ]


def _tensor(port: WirePort) -> dict[str, Any]:
    return {"name": port.name, "datatype": port.datatype, "shape": list(port.shape or ())}


def _configured(port: WirePort, has_batches: bool) -> dict[str, Any]:
    shape = port.shape or ()
    return {
        "name": port.name,
        "data_type": config_name(port.datatype),
        "dims": list(shape[1:] if has_batches else shape),
    }


def _policy(entry: Entry) -> dict[str, Any]:
    policy = entry.files.config.versions
    if policy.policy == "specific":
        return {"specific": {"versions": list(policy.specific)}}
    return {"all": {}} if policy.policy == "all" else {"latest": {"num_versions": policy.latest}}


def _size_names(ports: Sequence[WirePort]) -> dict[str, Any]:
    """Return shapes with the file's names of dynamic sizes, which the protocol writes as -1."""
    named = [each for each in ports if any(each.port.size_names)]
    return {f"shape.{each.name}": {"string_value": each.port.shape_text} for each in named}


def _parameters(entry: Entry) -> dict[str, Any]:
    """Return the task, and a parameter for every tag."""
    entry.update_tags()
    tags = {f"tag.{tag}": {"string_value": str(number)} for tag, number in entry.tags.items()}
    return {"task": {"string_value": entry.files.config.task}, **tags}


_LOAD: Final = ("config",)
_UNLOAD: Final = ("unload_dependents",)
_FILE: Final = "file:"


def read_load(document: Mapping[str, Any]) -> str | None:
    """Return the JSON that replaces the model's config, or None.

    Raises:
        RefusedError: the request has files, or an unknown parameter.
    """
    parameters = _parameters_of(document)
    for key in parameters:
        if key.startswith(_FILE):
            raise RefusedError(
                f"parameter '{cut(key)}': found a file in the request, expected it in the store's folder"
            )
    _check(parameters, _LOAD)
    config = parameters.get("config")
    if config is not None and not isinstance(config, str):
        raise RefusedError(f"parameter 'config': found {brief(config)}, expected JSON as text")
    return config


def check_unload(document: Mapping[str, Any]) -> None:
    """Check the parameters of an unload request; models never depend on others.

    Raises:
        RefusedError: unknown parameters.
    """
    parameters = _parameters_of(document)
    _check(parameters, _UNLOAD)
    wanted = parameters.get("unload_dependents")
    if wanted is not None and not isinstance(wanted, bool):
        raise RefusedError(f"parameter 'unload_dependents': found {brief(wanted)}, expected true or false")


def _parameters_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = document.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RefusedError(f"parameters: found {brief(parameters)}, expected a JSON object")
    return parameters


def _check(parameters: Iterable[str], known: tuple[str, ...]) -> None:
    for key in parameters:
        if key not in known:
            raise RefusedError(f"unknown parameter '{cut(key)}', expected one of {quoted(known)}")
