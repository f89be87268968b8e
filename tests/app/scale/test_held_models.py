"""Tests of routing to models and of the models that a replica holds; without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.errors import ModelNotFoundError, ServiceError
from app.scale.ray.held_models import HeldModels
from app.scale.ray.wire import Wire, model_of, passed
from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, write_model

NAMES = ("a", "b", "c")


@pytest.mark.parametrize(
    "method, target, body, name",
    [
        ("POST", "/models/a/infer", b"", "a"),
        ("GET", "/models/a", b"", "a"),
        ("GET", "/models/a/graph", b"", "a"),
        ("POST", "/v2/models/a/versions/2/infer", b"", "a"),
        ("POST", "/v2/repository/models/a/load", b"", "a"),
        ("GET", "/v2/models/stats", b"", None),
        ("GET", "/models", b"", None),
        ("GET", "/health/ready", b"", None),
        ("GET", "/infer", b"", None),
        ("POST", "/infer?model=a", b"{", "a"),
        ("POST", "/infer?model=", b"{", ""),
        ("GET", "/graph?model=a", b"", "a"),
        ("POST", "/infer", b'{"model": "a", "inputs": 1}', "a"),
        ("POST", "/infer", b'{"model": 7}', "default"),
        ("POST", "/infer", b"not json", "default"),
        ("GET", "/graph", b"", "default"),
    ],
)
def test_a_request_says_which_model_it_is_for(method: str, target: str, body: bytes, name: str | None) -> None:
    path, _, query = target.partition("?")
    scope = {"method": method, "path": path, "query_string": query.encode(), "headers": []}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def aim() -> tuple[str | None, dict[str, Any]]:
        found, replay = await model_of(scope, receive, 100, lambda: "default")
        return found, dict(await replay())

    found, message = asyncio.run(aim())
    assert (found, message["body"]) == (name, body)


def test_a_body_is_read_for_it_up_to_the_limit() -> None:
    scope = {"method": "POST", "path": "/infer", "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": bytes(60), "more_body": True}

    with pytest.raises(ServiceError, match="larger than 100 bytes"):
        asyncio.run(model_of(scope, receive, 100, lambda: None))


def test_a_request_and_its_answer_pass_as_the_bytes_they_are() -> None:
    async def echo(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
        message = await receive()
        await send({"type": "http.response.start", "status": 418, "headers": scope["headers"]})
        await send({"type": "http.response.body", "body": memoryview(message["body"]), "more_body": True})
        await send({"type": "http.response.body", "body": scope["query_string"]})

    wire = Wire(("POST", "/x", b"q=1"), [(b"a", b"b")], bytes(range(256)))
    answer = asyncio.run(passed(echo, wire))
    assert answer == Wire((418,), [(b"a", b"b")], bytes(range(256)) + b"q=1")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for term, name in enumerate(NAMES):
        write_model(tmp_path, name, elementwise(f"add(@0,{term})", "(?,2)f32"))
    return tmp_path


def holding(client: Client, most: int | None, *, only: tuple[str, ...] | None = None, others: str = "") -> HeldModels:
    settings = client.plane.settings.model_copy(update={"reload_interval_s": 0.02})
    return HeldModels(client.plane, settings, only, frozenset(others), most)


def loaded(client: Client) -> set[str]:
    return {entry.name for entry in client.plane.store.entries if entry.unloaded is None}


def test_of_models_that_are_asked_for_the_one_goes_that_was_asked_for_longest_ago(store: Path) -> None:
    with serving(store, model_control="explicit", warmup=False) as client:
        held = holding(client, 2)

        async def ask(name: str) -> int:
            async with held.held(name):
                return (await client.http.post(f"/models/{name}/infer", json={"inputs": [[0, 0]]})).status_code

        async def all_of_it() -> None:
            await held.start()
            assert loaded(client) == set()
            assert [await ask(name) for name in "abac"] == [200] * 4
            assert loaded(client) == {"a", "c"}
            assert await ask("none") == 404
            # More at once than there are places: each has its turn, and none is cut off.
            assert await asyncio.gather(*(ask(name) for name in "abcabcabcabc")) == [200] * 12
            assert len(loaded(client)) == 2
            held.close()

        client.run(all_of_it())


def test_models_of_others_are_not_loaded_and_the_default_is_that_of_the_whole_store(store: Path) -> None:
    with serving(store, model_control="explicit", warmup=False) as client:
        held = holding(client, None, others="b")
        client.run(held.start())
        assert loaded(client) == {"a", "c"}
        with pytest.raises(ModelNotFoundError, match="expected \\?model= one of 'a', 'b', 'c'"):
            held.default()
        held.close()


def test_a_replica_of_one_model_follows_its_files(store: Path) -> None:
    with serving(store, model_control="explicit", warmup=False) as client:
        held = holding(client, None, only=("b",))

        async def answer() -> float:
            found = await client.http.post("/models/b/infer", json={"inputs": [[0, 0]]})
            return float(found.json()["outputs"]["out0"]["data"][0])

        async def follow() -> None:
            await held.start()
            assert loaded(client) == {"b"} and await answer() == 1.0
            for path in (store / "b" / "1").iterdir():
                if path.name.endswith("param"):
                    path.write_text(path.read_text().replace("add(@0,1)", "add(@0,7)"))
            async with asyncio.timeout(120):
                while await answer() != 7.0:
                    await asyncio.sleep(0.02)
            held.close()

        client.run(follow())
