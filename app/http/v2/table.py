"""Which path of the protocol does what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from app.http.v2 import control, infer, metadata

PREFIX: Final = "/v2"
Endpoint = Callable[[Request], Awaitable[Response]]

# In this order: /v2/models/stats is no model's.
_SERVER: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "", metadata.server),
    ("GET", "/", metadata.server),
    ("GET", "/health/live", metadata.live),
    ("GET", "/health/ready", metadata.ready),
    ("GET", "/models", metadata.models),
    ("GET", "/models/stats", metadata.all_statistics),
    ("POST", "/repository/index", control.index),
    ("POST", "/repository/models/{name}/load", control.load),
    ("POST", "/repository/models/{name}/unload", control.unload),
    ("GET", "/logging", control.show_logging),
    ("POST", "/logging", control.set_logging),
    ("GET", "/trace/setting", control.show_trace),
    ("POST", "/trace/setting", control.set_trace),
    ("GET", "/models/{name}/trace/setting", control.show_trace),
    ("POST", "/models/{name}/trace/setting", control.set_trace),
)
# Below /systemsharedmemory and /cudasharedmemory.
_MEMORY: Final[tuple[tuple[str, str, Endpoint, Endpoint], ...]] = (
    ("GET", "/status", control.memory_status, control.device_status),
    ("GET", "/region/{region}/status", control.memory_status, control.device_status),
    ("POST", "/region/{region}/register", control.register_memory, control.register_device),
    ("POST", "/region/{region}/unregister", control.unregister_memory, control.unregister_device),
    ("POST", "/unregister", control.unregister_memory, control.unregister_device),
)
# Each of these also as /models/{name}/versions/{version}...
_MODEL: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "", metadata.model),
    ("GET", "/ready", metadata.model_ready),
    ("GET", "/config", metadata.config),
    ("GET", "/stats", metadata.statistics),
    ("POST", "/infer", infer.infer),
)


def _table() -> Iterator[tuple[str, str, Endpoint]]:
    for method, path, endpoint in _SERVER:
        yield method, PREFIX + path, endpoint
    for method, path, of_system, of_device in _MEMORY:
        yield method, f"{PREFIX}/systemsharedmemory{path}", of_system
        yield method, f"{PREFIX}/cudasharedmemory{path}", of_device
    for method, path, endpoint in _MODEL:
        for model in ("/models/{name}", "/models/{name}/versions/{version}"):
            yield method, PREFIX + model + path, endpoint


# Method, path and what answers, in the order in which they are tried: every try costs a microsecond, so what is asked
# for most comes first.
ROUTES: Final = tuple(sorted(_table(), key=lambda row: row[2] is not infer.infer))
