"""The protocol's own app below /v2: its paths, and its shape of errors."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound, Route
from starlette.types import Receive, Scope, Send

from app.http.v2.errors import HANDLERS
from app.http.v2.table import PREFIX, ROUTES, Endpoint
from app.protocol.v2.regions import Regions
from app.protocol.v2.settings import ChangingSettings
from app.serving.dataplane import DataPlane


class V2App(BaseRoute):
    """What answers every path below /v2."""

    def __init__(self, plane: DataPlane, changing: ChangingSettings, regions: Regions | None) -> None:
        self._app = Starlette(routes=_routes(), exception_handlers=HANDLERS)
        self._app.router.redirect_slashes = False
        self._app.state.dataplane = plane
        self._app.state.changing = changing
        self._app.state.regions = regions

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a path is the protocol's."""
        path = scope.get("path", "")
        is_ours = scope["type"] == "http" and (path == PREFIX or path.startswith(f"{PREFIX}/"))
        return (Match.FULL if is_ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: object) -> object:  # type: ignore[override]
        """No route of the protocol has a name."""
        raise NoMatchFound(name, path_params)


def _routes() -> list[Route]:
    """One of each path: what a path does not take is refused with all that it takes."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in ROUTES:
        paths.setdefault(path, {})[method] = endpoint
    return [Route(path, _of_method(endpoints), methods=[*endpoints]) for path, endpoints in paths.items()]


def _of_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    if len(endpoints) == 1:
        return next(iter(endpoints.values()))

    async def answer(request: Request) -> Response:
        return await endpoints[request.method](request)

    return answer
