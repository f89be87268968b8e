"""Operations of the protocol except inference, each written once for HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from app.codec.message import read_version
from app.errors import ModelNotReadyError, RefusedError, VersionNotFoundError
from app.messages import brief, cut, quoted
from app.models.model import Model
from app.models.registry.store import Store
from app.models.registry.version import Entry, State, Version
from app.models.servable import Servable
from app.models.statistics import Batches, Statistics, Timing
from app.protocol.v2.ports import WirePort, config_name, has_wire_ports, wire_ports
from app.protocol.v2.request import read_flag
from app.protocol.v2.runtime_settings import RuntimeSettings, change_logging, change_trace
from app.protocol.v2.shared_memory import MemoryRegions
from app.serving.dataplane import DataPlane
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
_LOAD: Final = ("config",)
_UNLOAD: Final = ("unload_dependents",)
_FILE: Final = "file:"


def server_metadata(*, has_memory: bool = False) -> dict[str, Any]:
    """Return name, version and extensions; has_memory: whether clients may register shared memory."""
    extensions = [*EXTENSIONS, *(["system_shared_memory"] if has_memory else [])]
    return {"name": NAME, "version": program_version(), "extensions": extensions}


def model_metadata(entry: Entry, model: Servable) -> dict[str, Any]:
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


def model_config(entry: Entry, version: Version, model: Servable) -> dict[str, Any]:
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
        "response_cache": {"enable": isinstance(model, Model) and model.response_cache is not None},
        "parameters": {**_parameters(entry), **_size_names([*ports.inputs, *ports.outputs])},
    }


def _batching(model: Servable) -> dict[str, Any]:
    """Return the batching table if requests share runs; clients rely on it."""
    if not isinstance(model, Model) or not model.batcher.verdict.enabled:
        return {}
    batcher = model.batcher
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Arguments of an operation.

    Args:
        plane, runtime_settings, regions: of the server; regions is None without shared memory.
        name: of a model or a region, or None.
        version: of the model, as sent; None for the newest.
        document: the message as JSON.
        deadline: on time.monotonic()'s clock.
    """

    plane: DataPlane
    runtime_settings: RuntimeSettings
    regions: MemoryRegions | None
    name: str | None = None
    version: str | None = None
    document: Mapping[str, Any]
    deadline: float

    async def find(self) -> tuple[Entry, Version, Servable]:
        """Return the named model in a ready version, with its ports cached.

        Raises:
            ServiceError: see the function ``find``.
        """
        entry, version, model = find(self.plane.store, self.name, read_version(self.version))
        await cache_ports(self.plane, model, self.deadline)
        return entry, version, model

    @property
    def model(self) -> str | None:
        """Return the name of an existing model, or None if none is named."""
        return None if self.name is None else self.plane.store.entry(self.name).name


# Its first docstring line is the summary in the OpenAPI document; None is an answer without content.
Operation: TypeAlias = Callable[[Question], Awaitable[Any]]


async def cache_ports(plane: DataPlane, model: Servable, deadline: float) -> None:
    """Find out how a model takes batches; not on the event loop, since it may run the model."""
    if not has_wire_ports(model):
        await plane.offload(partial(wire_ports, model), deadline)


async def server(asked: Question) -> Any:
    """Return name, version and extensions of the server."""
    return server_metadata(has_memory=asked.regions is not None)


async def live(_: Question) -> Any:
    """Return true as long as the server can answer."""
    return {"live": True}


async def models(asked: Question) -> Any:
    """List the names of all models that are ready."""
    return {"models": [entry.name for entry in asked.plane.store.entries if entry.state is State.READY]}


async def model(asked: Question) -> Any:
    """Return inputs, outputs and versions of a model."""
    entry, _, found = await asked.find()
    return model_metadata(entry, found)


async def model_ready(asked: Question) -> Any:
    """Return whether a model, or one version of it, is ready."""
    entry, _, _ = find(asked.plane.store, asked.name, read_version(asked.version))
    return {"name": entry.name, "ready": True}


async def config(asked: Question) -> Any:
    """Return the configuration of a model."""
    return model_config(*await asked.find())


async def model_statistics(asked: Question) -> Any:
    """Return statistics of a model's versions, or of one version."""
    return {"model_stats": statistics(asked.plane.store, asked.name, read_version(asked.version))}


async def all_statistics(asked: Question) -> Any:
    """Return statistics of all models."""
    return {"model_stats": statistics(asked.plane.store, None, None)}


async def index(asked: Question) -> Any:
    """List the models of the store, or those that are ready."""
    only_ready = read_flag(asked.document, "ready") or False
    await asked.plane.control.discover()
    return repository_index(asked.plane.store, only_ready=only_ready)


async def load(asked: Question) -> Any:
    """Load a model from the store, beside the version that is served."""
    await asked.plane.control.load(asked.name or "", read_load(asked.document))


async def unload(asked: Question) -> Any:
    """Stop serving a model."""
    check_unload(asked.document)
    await asked.plane.control.unload(asked.name or "")


async def show_logging(asked: Question) -> Any:
    """Return the log settings."""
    return asked.runtime_settings.logging.show()


async def set_logging(asked: Question) -> Any:
    """Change log settings and return all."""
    await change_logging(asked.plane.commands, asked.document)
    return asked.runtime_settings.logging.show()


async def show_trace(asked: Question) -> Any:
    """Return the trace settings of a model, or those for all models."""
    return asked.runtime_settings.trace.show(asked.model)


async def set_trace(asked: Question) -> Any:
    """Change trace settings and return all."""
    name = asked.model
    await change_trace(asked.plane.commands, asked.document, name)
    return asked.runtime_settings.trace.show(name)


async def memory_status(asked: Question) -> Any:
    """List the registered regions, or one of them."""
    return (asked.regions or MemoryRegions()).show(asked.name)


async def register_memory(asked: Question) -> Any:
    """Register shared memory for inputs and outputs."""
    name = asked.name or ""
    if asked.regions is None:
        raise RefusedError(f"failed to register shared memory region '{cut(name)}': not enabled on this server")
    asked.regions.register(name, asked.document)


async def unregister_memory(asked: Question) -> Any:
    """Unregister a region, or all; unknown names are ignored."""
    if asked.regions is not None:
        asked.regions.unregister(asked.name)


async def device_status(asked: Question) -> Any:
    """List no regions, since device memory is not supported."""
    return MemoryRegions().show(asked.name)


async def register_device(asked: Question) -> Any:
    """Refuse device memory, which is not supported."""
    raise RefusedError(f"failed to register CUDA shared memory region: '{cut(asked.name or '')}', GPUs not supported")


async def unregister_device(_: Question) -> Any:
    """Do nothing; clients call this before they begin."""


def find(store: Store, name: str | None, number: int | str | None) -> tuple[Entry, Version, Servable]:
    """Return a model by name, in a version that is ready.

    Raises:
        ModelNotFoundError, VersionNotFoundError: it does not exist.
        ModelNotReadyError: it is loading, or has failed to load.
    """
    entry = store.entry(name)
    version = store.version(entry.name, number)
    if version.model is None:  # Store.version returns ready versions only
        raise ModelNotReadyError(f"model '{entry.name}' is not loaded")
    return entry, version, version.model


def statistics(store: Store, name: str | None, number: int | str | None) -> Sequence[dict[str, Any]]:
    """Return statistics of the named version, of all versions of the named model, or of all models.

    Raises:
        ModelNotFoundError, VersionNotFoundError: there is none.
    """
    entries = store.entries if name is None else (store.entry(name),)
    if isinstance(number, str):
        number = entries[0].number_of(number)
    tell = store.counters.read()
    rows = [
        model_stats(entry, each, tell(each).statistics)
        for entry in entries
        for each in entry.versions
        if number in (None, each.number)
    ]
    if name is not None and number is not None and not rows:
        raise VersionNotFoundError(f"model '{entries[0].name}' has no version {number}")
    return rows


def model_stats(entry: Entry, version: Version, figures: Statistics) -> dict[str, Any]:
    """Return statistics of one version; times are sums in nanoseconds."""
    return {
        "name": entry.name,
        "version": str(version.number),
        "last_inference": 0 if figures.last_request_at is None else int(figures.last_request_at * 1e3),
        "inference_count": figures.items - figures.hits.items,
        "execution_count": figures.runs,
        "inference_stats": _inference(figures),
        "response_stats": {},
        "batch_stats": [_batch(size, batches) for size, batches in sorted(figures.batches.items())],
        "memory_usage": [],
    }


def _inference(figures: Statistics) -> dict[str, Any]:
    sums, count = figures.sums, figures.requests
    return {
        "success": _duration(count, sums.total_s),
        "fail": _duration(figures.failures.total(), figures.failed_s),
        "queue": _duration(count, sums.queue_s),
        **_compute(count - figures.hits.count, sums),
        "cache_hit": _duration(figures.hits.count, figures.hits.seconds),
        "cache_miss": _duration(figures.misses.count, figures.misses.seconds),
    }


def _batch(size: int, batches: Batches) -> dict[str, Any]:
    return {"batch_size": size, **_compute(batches.count, batches.sums)}


def _compute(count: int, sums: Timing) -> dict[str, Any]:
    return {
        "compute_input": _duration(count, sums.decode_s + sums.preprocess_s),
        "compute_infer": _duration(count, sums.infer_s),
        "compute_output": _duration(count, sums.postprocess_s),
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
