"""Tests that the health is answered while a long JSON body is parsed.

They measure the CPU time that this process takes between two answers, so that other processes do not count. One
attempt of several without a long pause is enough to show that no pause is necessary.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, write_model
from tests.nightly import IS_NIGHTLY

BYTES = 40_000_000 if IS_NIGHTLY else 8_000_000
LONGEST_S = 0.05
ATTEMPTS = 5

ROW = b'{"name":"in0","datatype":"FP32","shape":[1,3],"data":[1,2,3]}'
ONE = b'"inputs":[[1,2,3]]'


def many(unit: bytes) -> bytes:
    return unit * (BYTES // len(unit))


BODIES = {
    "output names": lambda: b'{"outputs":[' + many(b'"output1",') + b'"o"],' + ONE + b"}",
    "escapes": lambda: b'{"model":"' + many(b"\\u4e2d") + b'",' + ONE + b"}",
    "short escapes": lambda: b'{"inputs":"' + many(b"\\n") + b'"}',
    "empty lists": lambda: b'{"inputs":[' + many(b"[],") + b"[]]}",
    "short lists": lambda: b'{"inputs":[' + many(b"[1,2,3],") + b"[1,2,3]]}",
    "deep lists": lambda: b'{"inputs":[' + many(b"[[[]]],") + b"[]]}",
    "a long key": lambda: b'{"' + many(b"a") + b'":1,' + ONE + b"}",
    "a long name of an input": lambda: b'{"inputs":{"' + many(b"a") + b'":1}}',
    "a long name of the model": lambda: b'{"model":"' + many(b"a") + b'",' + ONE + b"}",
    "a long text": lambda: b'{"inputs":"' + many("模".encode()) + b'"}',
    "strings": lambda: b'{"inputs":[' + many(b'"abc",') + b'""]}',
    "long strings": lambda: b'{"inputs":[' + many(b'"' + b"x" * 100_000 + b'",') + b'""]}',
    "nulls": lambda: b'{"inputs":[' + many(b"null,") + b"1]}",
    "objects": lambda: b'{"inputs":[' + many(b"{},") + b"1]}",
    "blanks": lambda: b"{" + many(b" ") + ONE + b"}",
    "a long number": lambda: b'{"inputs":[[1,' + many(b"2") + b"]]}",
    "numbers": lambda: b'{"inputs":[' + many(b"1.25,") + b"1]}",
    "base64": lambda: b'{"inputs":{"in0":{"shape":[1,3],"b64":"' + many(b"AAAA") + b'"}}}',
    "no JSON": lambda: b'{"inputs":' + many(b"x"),
    "a string without an end": lambda: b'{"inputs":"' + many(b"a"),
    "backslashes": lambda: b'{"inputs":"' + many(b"\\"),
}
V2_BODIES = {
    "outputs": lambda: b'{"inputs":[' + ROW + b'],"outputs":[' + many(b'{"name":"a"},') + b'{"name":"b"}]}',
    "a long output": lambda: b'{"inputs":[' + ROW + b'],"outputs":[{"name":"' + many(b"a") + b'"}]}',
    "a long id": lambda: b'{"inputs":[' + ROW + b'],"id":"' + many(b"a") + b'"}',
    "parameters": lambda: b'{"inputs":[' + ROW + b'],"parameters":{"x":[' + many(b"[],") + b"1]}}",
    "sizes": lambda: b'{"inputs":[' + ROW.replace(b"1,3", many(b"1,") + b"1") + b"]}",
    "numbers": lambda: b'{"inputs":[' + ROW.replace(b"1,2,3", many(b"1.5,") + b"1") + b"]}",
    "texts": lambda: b'{"inputs":[' + ROW.replace(b"1,2,3", many(b'"a",') + b'"b"') + b"]}",
}


@pytest.fixture(scope="module", autouse=True)
def turns() -> Iterator[None]:
    """Set the thread switch interval of the server's process (app/process/server.py)."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store: Path = tmp_path_factory.mktemp("loop")
    write_model(store, "one", elementwise("add(@0,1)", "(?,3)f32"))
    with serving(store, max_bytes_in_flight=1 << 40, request_timeout_s=600.0) as client:
        yield client


async def longest_pause_s(client: Client, path: str, body: bytes) -> float:
    request = asyncio.ensure_future(client.http.post(path, content=body, timeout=600))
    longest, last = 0.0, time.process_time()
    while not request.done():
        await asyncio.sleep(0.002)
        answer = await client.http.get("/health/live")
        assert answer.status_code == 200
        longest, last = max(longest, time.process_time() - last), time.process_time()
    assert request.result().status_code in (200, 400, 413, 422)
    return longest


@pytest.mark.parametrize(
    ("path", "name"),
    [*(("/models/one/infer", name) for name in BODIES), *(("/v2/models/one/infer", name) for name in V2_BODIES)],
)
def test_the_health_is_answered_while_a_long_body_is_read(client: Client, path: str, name: str) -> None:
    body = (V2_BODIES if path.startswith("/v2") else BODIES)[name]()
    found: list[float] = []
    while len(found) < ATTEMPTS and min(found, default=LONGEST_S) >= LONGEST_S:
        found.append(client.run(longest_pause_s(client, path, body)))
    assert min(found) < LONGEST_S, found
