"""GET routes of the protocol: health, metadata, configuration, statistics."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from app.codec.message import read_version
from app.errors import ModelNotReadyError
from app.http.body import dataplane
from app.http.responses import json_response
from app.models.model import Model
from app.models.registry.version import Entry, State, Version
from app.protocol.v2 import lookup
from app.protocol.v2.metadata import model_config, model_metadata, server_metadata
from app.protocol.v2.ports import has_wire_ports, wire_ports


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
    error = ModelNotReadyError(f"not ready: {reason}", retry_after_s=plane.settings.retry_after_s)
    return json_response({"ready": False, "reason": reason, "error": error.message}, error.status, error.headers)


async def models(request: Request) -> Response:
    """List the names of all models that are ready."""
    entries = dataplane(request).store.entries
    return json_response({"models": [entry.name for entry in entries if entry.state is State.READY]})


async def model(request: Request) -> Response:
    """Return inputs, outputs and versions of a model."""
    entry, _, found = await asked(request)
    return json_response(model_metadata(entry, found))


async def model_ready(request: Request) -> Response:
    """Return whether a model, or one version of it, is ready."""
    entry, _, _ = _found(request)
    return json_response({"name": entry.name, "ready": True})


async def config(request: Request) -> Response:
    """Return the configuration of a model."""
    return json_response(model_config(*await asked(request)))


async def statistics(request: Request) -> Response:
    """Return statistics of a model's versions, or of one version."""
    name = request.path_params["name"]
    return json_response({"model_stats": lookup.statistics(dataplane(request).store, name, _number(request))})


async def all_statistics(request: Request) -> Response:
    """Return statistics of all models."""
    return json_response({"model_stats": lookup.statistics(dataplane(request).store, None, None)})


async def asked(request: Request) -> tuple[Entry, Version, Model]:
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
