"""A server in this process, and a client that waits for its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from app.http.main import create_app
from app.serving.dataplane import DataPlane
from app.settings import Settings

T = TypeVar("T")


class Client:
    """Requests to an app without a socket. ``run`` runs a coroutine on the app's own loop."""

    def __init__(self, app: FastAPI, runner: asyncio.Runner) -> None:
        self.app = app
        self.plane: DataPlane = app.state.dataplane
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://server")
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.run(self.http.get(path, **more))

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.run(self.http.post(path, **more))

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.run(self.http.request(method, path, **more))

    def infer(self, model: str, inputs: object, **more: Any) -> httpx.Response:
        return self.post(f"/models/{model}/infer", json={"inputs": inputs, **more})


@contextmanager
def serving(store: Path, *, wait: bool = True, **settings: Any) -> Iterator[Client]:
    """Return a client of an app that serves a store; wait says whether to wait until models are loaded."""
    with asyncio.Runner() as runner:
        app = create_app(Settings(store=store, **settings))
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        client = Client(app, runner)
        try:
            if wait:
                runner.run(client.plane.loaded.wait())
            yield client
        finally:
            runner.run(client.http.aclose())
            runner.run(lifespan.__aexit__(None, None, None))
