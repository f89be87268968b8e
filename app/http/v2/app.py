"""The app below /v2: its routes, and its form of errors (``{"error": text}``, and 400 for all invalid requests)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound, Route
from starlette.types import Receive, Scope, Send

from app.codec.json_body import parse_json
from app.errors import InputMismatchError, InvalidRequestError, ModelNotReadyError, RefusedError, ServiceError
from app.http.body import dataplane, read_body
from app.http.responses import json_response
from app.http.v2 import infer
from app.messages import brief
from app.protocol.v2 import operations
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


async def ready(request: Request) -> Response:
    """Return whether all models that should be served are ready."""
    reason = dataplane(request).unready_reason()
    if reason is None:
        return json_response({"ready": True, "live": True})
    error = ModelNotReadyError(f"not ready: {reason}")
    return json_response({"ready": False, "reason": reason, "error": error.message}, error.status, error.headers)


Endpoint: TypeAlias = Callable[[Any], Awaitable[Any]]  # an operation, or an endpoint of Starlette
_ENDPOINTS: Final = (ready, infer.infer)
_MAX_BYTES: Final = 1 << 20

PREFIX: Final = "/v2"
# In this order, since /v2/models/stats does not name a model.
_SERVER: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "", operations.server),
    ("GET", "/", operations.server),
    ("GET", "/health/live", operations.live),
    ("GET", "/health/ready", ready),
    ("GET", "/models", operations.models),
    ("GET", "/models/stats", operations.all_statistics),
    ("POST", "/repository/index", operations.index),
    ("POST", "/repository/models/{name}/load", operations.load),
    ("POST", "/repository/models/{name}/unload", operations.unload),
    ("GET", "/logging", operations.show_logging),
    ("POST", "/logging", operations.set_logging),
    ("GET", "/trace/setting", operations.show_trace),
    ("POST", "/trace/setting", operations.set_trace),
    ("GET", "/models/{name}/trace/setting", operations.show_trace),
    ("POST", "/models/{name}/trace/setting", operations.set_trace),
)
# Below /systemsharedmemory and /cudasharedmemory.
_MEMORY: Final[tuple[tuple[str, str, Endpoint, Endpoint], ...]] = (
    ("GET", "/status", operations.memory_status, operations.device_status),
    ("GET", "/region/{region}/status", operations.memory_status, operations.device_status),
    ("POST", "/region/{region}/register", operations.register_memory, operations.register_device),
    ("POST", "/region/{region}/unregister", operations.unregister_memory, operations.unregister_device),
    ("POST", "/unregister", operations.unregister_memory, operations.unregister_device),
)
# Each of these also as /models/{name}/versions/{version}...
_MODEL: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "", operations.model),
    ("GET", "/ready", operations.model_ready),
    ("GET", "/config", operations.config),
    ("GET", "/stats", operations.model_statistics),
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
    return [NamedRoute(path, _of_methods(found), methods=[*found]) for path, found in paths.items()]


def _of_methods(endpoints: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        endpoint, named, state = endpoints[request.method], request.path_params, request.app.state
        if endpoint in _ENDPOINTS:
            return await endpoint(request)
        found = await endpoint(
            operations.Question(
                plane=state.dataplane,
                runtime_settings=state.runtime_settings,
                regions=state.shared_memory,
                name=named.get("name", named.get("region")),
                version=named.get("version"),
                document=await _object(request) if request.method == "POST" else {},
                deadline=state.dataplane.deadline(),
            )
        )
        return Response() if found is None else json_response(found)

    return answer


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
