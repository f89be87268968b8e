"""Fixtures: both clients with a blocking interface, a stub server, and a shared server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from pnnx_client import AsyncClient, Client
from tests.app.sample_models import write_zoo
from tests.app.sockets import listening
from tests.app.v2_models import DATATYPES, through, write_model, write_simple

Open: TypeAlias = Callable[..., Client]


class Awaited:
    """Blocking wrapper of an AsyncClient."""

    def __init__(self, runner: asyncio.Runner, url: str, **options: Any) -> None:
        self._runner = runner
        self._client = AsyncClient(url, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **more: self._runner.run(method(*args, **more))


@pytest.fixture(params=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Provide a factory of clients that closes them."""
    with ExitStack() as exits:
        runner = exits.enter_context(asyncio.Runner()) if request.param == "AsyncClient" else None

        def connect(url: str, **options: Any) -> Any:
            client = Client(url, **options) if runner is None else Awaited(runner, url, **options)
            exits.callback(client.close)
            return client

        yield connect


@pytest.fixture
def stub(connect: Open) -> Callable[..., tuple[Client, list[httpx.Request]]]:
    """Provide a client of a fake server with these answers, and the requests that it received."""

    def stub(*answers: Callable[[], httpx.Response] | Exception, **options: Any) -> tuple[Client, list[httpx.Request]]:
        asked: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            given = answers[min(len(asked), len(answers)) - 1]
            if isinstance(given, Exception):
                raise given
            return given()

        return connect("http://server", transport=httpx.MockTransport(answer), **options), asked

    return stub


@pytest.fixture(scope="package")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("zoo")
    write_zoo(store)
    write_simple(store)
    write_model(store, "named", through("torch.clone", "(?,3)f32"), config='versions = "all"\n')
    write_model(store, "named", through("nn.ReLU", "(?,3)f32"), version=2)
    for code in DATATYPES:
        write_model(store, f"copy_{code}", through("torch.clone", f"(?,3){code}"))
    with listening(Path(store)) as front:
        yield f"http://127.0.0.1:{front.port}"


@pytest.fixture
def client(connect: Open, url: str) -> Client:
    return connect(url)
