"""Endpoints of the protocol, except inference: health, metadata, repository, logging, tracing, shared memory.

app/http/access.py protects those that change the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from app.codec.json_body import parse_json
from app.codec.message import read_version
from app.errors import ModelNotReadyError, RefusedError
from app.http.body import dataplane, read_body
from app.http.responses import json_response
from app.messages import brief, cut
from app.models.model import Model
from app.models.registry.version import Entry, State, Version
from app.protocol.v2 import lookup
from app.protocol.v2.metadata import (
    check_unload,
    model_config,
    model_metadata,
    read_load,
    repository_index,
    server_metadata,
)
from app.protocol.v2.ports import has_wire_ports, wire_ports
from app.protocol.v2.request import read_flag
from app.protocol.v2.runtime_settings import RuntimeSettings, change_logging, change_trace
from app.protocol.v2.shared_memory import MemoryRegions

_MAX_BYTES: Final = 1 << 20


async def index(request: Request) -> Response:
    """List the models of the store, or those that are ready."""
    only_ready = read_flag(await _object(request), "ready") or False
    plane = dataplane(request)
    await plane.control.discover()
    return json_response(repository_index(plane.store, only_ready=only_ready))


async def load(request: Request) -> Response:
    """Load a model from the store, beside the version that is served."""
    config = read_load(await _object(request))
    await dataplane(request).control.load(request.path_params["name"], config)
    return Response()


async def unload(request: Request) -> Response:
    """Stop serving a model."""
    check_unload(await _object(request))
    await dataplane(request).control.unload(request.path_params["name"])
    return Response()


async def show_logging(request: Request) -> Response:
    """Return the log settings."""
    return json_response(_settings(request).logging.show())


async def set_logging(request: Request) -> Response:
    """Change log settings and return all."""
    await change_logging(dataplane(request).commands, await _object(request))
    return json_response(_settings(request).logging.show())


async def show_trace(request: Request) -> Response:
    """Return the trace settings of a model, or those for all models."""
    return json_response(_settings(request).trace.show(_model(request)))


async def set_trace(request: Request) -> Response:
    """Change trace settings and return all."""
    name = _model(request)
    await change_trace(dataplane(request).commands, await _object(request), name)
    return json_response(_settings(request).trace.show(name))


async def memory_status(request: Request) -> Response:
    """List the registered regions, or one of them."""
    regions = _regions(request) or MemoryRegions()
    return json_response(regions.show(request.path_params.get("region")))


async def register_memory(request: Request) -> Response:
    """Register shared memory for inputs and outputs."""
    wanted, name, regions = await _object(request), request.path_params["region"], _regions(request)
    if regions is None:
        raise RefusedError(f"failed to register shared memory region '{cut(name)}': not enabled on this server")
    regions.register(name, wanted)
    return Response()


async def unregister_memory(request: Request) -> Response:
    """Unregister a region, or all; unknown names are ignored."""
    await _object(request)
    if (regions := _regions(request)) is not None:
        regions.unregister(request.path_params.get("region"))
    return Response()


async def device_status(request: Request) -> Response:
    """List no regions, since device memory is not supported."""
    return json_response(MemoryRegions().show(request.path_params.get("region")))


async def register_device(request: Request) -> Response:
    """Refuse device memory, which is not supported."""
    await _object(request)
    raise RefusedError(
        f"failed to register CUDA shared memory region: '{cut(request.path_params['region'])}', GPUs not supported"
    )


async def unregister_device(request: Request) -> Response:
    """Do nothing; clients call this before they begin."""
    await _object(request)
    return Response()


def _regions(request: Request) -> MemoryRegions | None:
    regions = request.app.state.shared_memory
    assert regions is None or isinstance(regions, MemoryRegions)
    return regions


def _model(request: Request) -> str | None:
    name = request.path_params.get("name")
    return None if name is None else dataplane(request).store.entry(name).name


async def _object(request: Request) -> Mapping[str, Any]:
    """Return the JSON object in the body, an empty one for an empty body."""
    plane = dataplane(request)
    reservation = plane.memory.open()
    try:
        with reservation:
            body = await read_body(request, _MAX_BYTES, plane.deadline(), reservation)
            document = parse_json(body) if body.strip() else {}
    finally:
        reservation.close()
    if not isinstance(document, dict):
        raise RefusedError(f"the body: found {brief(document)}, expected a JSON object")
    return document


def _settings(request: Request) -> RuntimeSettings:
    settings = request.app.state.runtime_settings
    assert isinstance(settings, RuntimeSettings)
    return settings


async def server(request: Request) -> Response:
    """Return name, version and extensions of the server."""
    return json_response(server_metadata(has_memory=request.app.state.shared_memory is not None))


async def live(_: Request) -> Response:
    """Return true as long as the server can answer."""
    return json_response({"live": True})


async def ready(request: Request) -> Response:
    """Return whether all models that should be served are ready."""
    plane = dataplane(request)
    reason = plane.unready_reason()
    if reason is None:
        return json_response({"ready": True, "live": True})
    error = ModelNotReadyError(f"not ready: {reason}")
    return json_response({"ready": False, "reason": reason, "error": error.message}, error.status, error.headers)


async def models(request: Request) -> Response:
    """List the names of all models that are ready."""
    entries = dataplane(request).store.entries
    return json_response({"models": [entry.name for entry in entries if entry.state is State.READY]})


async def model(request: Request) -> Response:
    """Return inputs, outputs and versions of a model."""
    entry, _, found = await find_model(request)
    return json_response(model_metadata(entry, found))


async def model_ready(request: Request) -> Response:
    """Return whether a model, or one version of it, is ready."""
    entry, _, _ = _found(request)
    return json_response({"name": entry.name, "ready": True})


async def config(request: Request) -> Response:
    """Return the configuration of a model."""
    return json_response(model_config(*await find_model(request)))


async def statistics(request: Request) -> Response:
    """Return statistics of a model's versions, or of one version."""
    name = request.path_params["name"]
    return json_response({"model_stats": lookup.statistics(dataplane(request).store, name, _number(request))})


async def all_statistics(request: Request) -> Response:
    """Return statistics of all models."""
    return json_response({"model_stats": lookup.statistics(dataplane(request).store, None, None)})


async def find_model(request: Request) -> tuple[Entry, Version, Model]:
    """Return the model of a path in a ready version, with its ports cached.

    Raises:
        ModelNotFoundError, VersionNotFoundError: it does not exist.
        ModelNotReadyError: it is loading, or has failed to load.
    """
    entry, version, model = _found(request)
    if not has_wire_ports(model):  # not on the event loop, since it may run the model
        plane = dataplane(request)
        await plane.offload(partial(wire_ports, model), plane.deadline())
    return entry, version, model


def _found(request: Request) -> tuple[Entry, Version, Model]:
    return lookup.find(dataplane(request).store, request.path_params["name"], _number(request))


def _number(request: Request) -> int | str | None:
    return read_version(request.path_params.get("version"))
