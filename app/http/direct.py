"""Requests that run a model, from their path to their answer, without a framework in between.

There are four such paths, each plain text with a name in it, and one kind of error; to find that out a framework takes
as long as a small model. Everything else, paths and methods that are none of these among it, is left to the app behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import ServiceError
from app.http import responses
from app.http.routes import infer
from app.http.v2 import errors
from app.http.v2 import infer as v2

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Refuse: TypeAlias = Callable[[ServiceError], Response]

_ENDING: Final = infer.ENDING.removeprefix("/")


class Direct:
    """Wraps what answers all other requests.

    Args:
        owner: the app that endpoints find what they need in.
    """

    def __init__(self, app: ASGIApp, owner: Starlette) -> None:
        self._app = app
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        found = None if scope.get("root_path") else find(scope["method"], scope["path"])
        if found is None:
            await self._app(scope, receive, send)
            return
        endpoint, refuse, scope["path_params"] = found
        scope["app"] = self._owner
        try:
            response = await endpoint(Request(scope, receive, send))
        except ServiceError as error:
            response = refuse(error)
        await response(scope, receive, send)


def find(method: str, path: str) -> tuple[Endpoint, Refuse, Mapping[str, str]] | None:
    """What runs a model, what words its errors, and what the path says; None for other requests."""
    match path.split("/"):
        case ["", "models", name, last] if name and last == _ENDING and method in infer.METHODS:
            return infer.run, responses.error_response, {"name": name}
        case ["", last] if last == _ENDING and method in infer.METHODS:
            return infer.run, responses.error_response, {}
        case ["", "v2", "models", name, last] if name and last == _ENDING and method == "POST":
            return v2.infer, errors.error_response, {"name": name}
        case ["", "v2", "models", name, "versions", number, last] if (
            name and number and last == _ENDING and method == "POST"
        ):
            return v2.infer, errors.error_response, {"name": name, "version": number}
    return None
