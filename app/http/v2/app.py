"""The app below /v2: its routes, and its form of errors (``{"error": text}``, and 400 for all invalid requests)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound, Route
from starlette.types import Receive, Scope, Send

from app.errors import InputMismatchError, InvalidRequestError, ServiceError
from app.http.responses import json_response
from app.http.v2 import endpoints, infer
from app.protocol.v2.runtime_settings import RuntimeSettings
from app.protocol.v2.shared_memory import MemoryRegions
from app.serving.dataplane import DataPlane

_SHORT: Final = {404: "Not Found", 405: "Method Not Allowed"}


def error_response(error: ServiceError) -> Response:
    """Return an error in the protocol's form."""
    is_unfit = error.status == InputMismatchError.status
    status = InvalidRequestError.status if is_unfit else error.status
    return json_response({"error": error.message}, status, error.headers)


async def _service_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, ServiceError)
    return error_response(exc)


async def _http_exception(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return json_response({"error": _SHORT.get(exc.status_code, exc.detail)}, exc.status_code, exc.headers)


HANDLERS: Final[dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = {
    ServiceError: _service_error,
    HTTPException: _http_exception,
}


Endpoint = Callable[[Request], Awaitable[Response]]

PREFIX: Final = "/v2"
# In this order, since /v2/models/stats does not name a model.
_SERVER: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "", endpoints.server),
    ("GET", "/", endpoints.server),
    ("GET", "/health/live", endpoints.live),
    ("GET", "/health/ready", endpoints.ready),
    ("GET", "/models", endpoints.models),
    ("GET", "/models/stats", endpoints.all_statistics),
    ("POST", "/repository/index", endpoints.index),
    ("POST", "/repository/models/{name}/load", endpoints.load),
    ("POST", "/repository/models/{name}/unload", endpoints.unload),
    ("GET", "/logging", endpoints.show_logging),
    ("POST", "/logging", endpoints.set_logging),
    ("GET", "/trace/setting", endpoints.show_trace),
    ("POST", "/trace/setting", endpoints.set_trace),
    ("GET", "/models/{name}/trace/setting", endpoints.show_trace),
    ("POST", "/models/{name}/trace/setting", endpoints.set_trace),
)
# Below /systemsharedmemory and /cudasharedmemory.
_MEMORY: Final[tuple[tuple[str, str, Endpoint, Endpoint], ...]] = (
    ("GET", "/status", endpoints.memory_status, endpoints.device_status),
    ("GET", "/region/{region}/status", endpoints.memory_status, endpoints.device_status),
    ("POST", "/region/{region}/register", endpoints.register_memory, endpoints.register_device),
    ("POST", "/region/{region}/unregister", endpoints.unregister_memory, endpoints.unregister_device),
    ("POST", "/unregister", endpoints.unregister_memory, endpoints.unregister_device),
)
# Each of these also as /models/{name}/versions/{version}...
_MODEL: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "", endpoints.model),
    ("GET", "/ready", endpoints.model_ready),
    ("GET", "/config", endpoints.config),
    ("GET", "/stats", endpoints.statistics),
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


# Method, path and endpoint, in the order of matching: every attempt costs a microsecond, so inference comes first.
ROUTES: Final = tuple(sorted(_table(), key=lambda row: row[2] is not infer.infer))


class NamedRoute(Route):
    """Route that writes its path into the scope of matching requests, as FastAPI's routes do."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the route matches, and additions to the scope."""
        match, found = super().matches(scope)
        return match, found if match is Match.NONE else {**found, "route": self.path}


class V2App(BaseRoute):
    """Route of all paths below /v2."""

    def __init__(self, plane: DataPlane, runtime_settings: RuntimeSettings, regions: MemoryRegions | None) -> None:
        self._app = Starlette(routes=_routes(), exception_handlers=HANDLERS)
        self._app.router.redirect_slashes = False
        self._app.state.dataplane = plane
        self._app.state.runtime_settings = runtime_settings
        self._app.state.shared_memory = regions

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a path belongs to the protocol."""
        path = scope.get("path", "")
        is_ours = scope["type"] == "http" and (path == PREFIX or path.startswith(f"{PREFIX}/"))
        return (Match.FULL if is_ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: object) -> object:  # type: ignore[override]
        """Raise, since routes of the protocol have no names."""
        raise NoMatchFound(name, path_params)


def _routes() -> list[NamedRoute]:
    """Return one route per path, so that a wrong method is refused with all methods of the path."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in ROUTES:
        paths.setdefault(path, {})[method] = endpoint
    return [NamedRoute(path, _of_method(endpoints), methods=[*endpoints]) for path, endpoints in paths.items()]


def _of_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    if len(endpoints) == 1:
        return next(iter(endpoints.values()))

    async def answer(request: Request) -> Response:
        return await endpoints[request.method](request)

    return answer
