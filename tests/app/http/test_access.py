"""Tests of access control: which requests are answered, and how others are refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.routing import BaseRoute, Route

from app.http.access import group_of
from app.http.v2.app import ROUTES
from app.keys import Group
from tests.app.client import Client, serving
from tests.app.http.v2.messages import tensor
from tests.app.sample_models import elementwise, write_model

KEYS = {group: f"key-for-{group}-0123456789" for group in Group}
ALL = "; ".join(f"{group}: {key}" for group, key in KEYS.items())
X = tensor("in0", "FP32", np.ones((1, 3), np.float32))

# One request of each group in each protocol, with a body that would be answered 200.
REQUESTS = [
    (Group.INFER, "POST", "/infer", {"inputs": [[1, 1, 1]]}),
    (Group.INFER, "PUT", "/models/one/infer", {"inputs": [[1, 1, 1]]}),
    (Group.INFER, "POST", "/compare?entries=one::reference", {"inputs": [[1, 1, 1]]}),
    (Group.ADMIN, "POST", "/v2/systemsharedmemory/unregister", None),
    (Group.METADATA, "GET", "/models", None),
    (Group.METADATA, "GET", "/graph", None),
    (Group.METADATA, "GET", "/models/one/graph", None),
    (Group.METADATA, "GET", "/docs", None),
    (Group.METADATA, "GET", "/openapi.json", None),
    (Group.METADATA, "HEAD", "/models/one", None),
    (Group.METADATA, "GET", "/v2", None),
    (Group.METADATA, "GET", "/v2/models/one", None),
    (Group.METADATA, "GET", "/v2/logging", None),
    (Group.METADATA, "POST", "/v2/repository/index", None),
    (Group.ADMIN, "POST", "/v2/logging", {}),
    (Group.ADMIN, "POST", "/v2/trace/setting", {}),
    (Group.ADMIN, "POST", "/v2/models/one/trace/setting", {}),
    (Group.ADMIN, "POST", "/v2/repository/models/one/load", {}),
    (Group.ADMIN, "POST", "/v2/repository/models/two/unload", None),
    (Group.METADATA, "GET", "/models/one/tune", None),
    (Group.ADMIN, "POST", "/models/one/tune", {"backend": ["reference"], "seconds": 0.01}),
]
HEALTH = ["/ping", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("access")
    write_model(store, "one", elementwise("add(@0,1)", "(?,3)f32"), config="default = true")
    write_model(store, "two", elementwise("add(@0,1)", "(?,3)f32"))
    return store


@pytest.fixture(scope="module")
def locked(store: Path) -> Iterator[Client]:
    with serving(store, keys=ALL) as client:
        yield client


@pytest.fixture(scope="module")
def unlocked(store: Path) -> Iterator[Client]:
    with serving(store) as client:
        yield client


def far(client: Client, method: str, path: str, **more: object) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=client.app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            return await http.request(method, path, **more)  # type: ignore[arg-type]

    return client.run(send())


def message(answer: httpx.Response, path: str) -> str:
    error = answer.json()["error"]
    return str(error if path.startswith("/v2") else error["message"])


@pytest.mark.parametrize(("group", "method", "path", "body"), REQUESTS)
def test_setting_keys_lets_a_key_do_what_it_is_good_for_and_nothing_else(
    locked: Client, group: Group, method: str, path: str, body: object
) -> None:
    for own in Group:
        for header in ({"authorization": f"Bearer {KEYS[own]}"}, {"x-api-key": KEYS[own]}):
            answer = locked.request(method, path, json=body, headers=header)
            assert answer.status_code == (200 if own is group else 403), (own, answer.text)
            if own is not group and method != "HEAD":
                assert message(answer, path) == f"this key does not allow {group} requests"


@pytest.mark.parametrize(("group", "method", "path", "body"), REQUESTS)
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": f"Bearer {KEYS[Group.INFER]}x"}, {"authorization": f"Basic {KEYS[Group.INFER]}"},
     {"authorization": f"Bearer{KEYS[Group.INFER]}"}, {"authorization": "Bearer"}, {"x-api-key": ""},
     {"x-api-key": "wrong-key-wrong-key"}, {"api-key": KEYS[Group.INFER]}],
)  # fmt: skip
def test_without_a_known_key_there_is_no_answer(
    locked: Client, group: Group, method: str, path: str, body: object, headers: dict[str, str]
) -> None:
    answer = locked.request(method, path, json=body, headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.headers["x-request-id"]
    if method != "HEAD":
        assert "key" in message(answer, path)


@pytest.mark.parametrize("path", HEALTH)
@pytest.mark.parametrize("headers", [{}, {"x-api-key": "wrong-key-wrong-key"}])
def test_the_health_is_told_to_everybody(locked: Client, path: str, headers: dict[str, str]) -> None:
    assert far(locked, "GET", path, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/nowhere", "/v2/nowhere", "/metrics/x", "/infer/", "//health/live"])
def test_paths_that_are_not_there_are_not_told_to_strangers(locked: Client, path: str) -> None:
    assert locked.get(path).status_code == 401
    assert locked.get(path, headers={"x-api-key": KEYS[Group.METADATA]}).status_code == 404


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_word_bearer_is_read_however_it_is_written(locked: Client, scheme: str) -> None:
    answer = locked.get("/models", headers={"authorization": f"{scheme}  {KEYS[Group.METADATA]} "})
    assert answer.status_code == 200


def test_credentials_for_a_proxy_leave_room_for_a_key(locked: Client) -> None:
    headers = {"authorization": "Basic abc", "x-api-key": KEYS[Group.METADATA]}
    assert locked.get("/models", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/models", "/v2/models"])
def test_nothing_of_a_key_is_answered_or_logged(store: Path, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(store, keys=ALL, access_log=True) as client:
        for key in (KEYS[Group.INFER], KEYS[Group.METADATA], "wrong-key-wrong-key"):
            for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
                answer = client.get(path, headers=headers)
                assert key not in answer.text and key not in str(answer.headers)
        shown = client.get("/openapi.json", headers={"x-api-key": KEYS[Group.METADATA]}).text
    for key in (*KEYS.values(), "wrong-key-wrong-key"):
        assert key not in caplog.text and key not in shown


def test_setting_keys_file_opens_and_closes_while_the_server_runs(store: Path, tmp_path: Path) -> None:
    def status_becomes(key: str, status: int) -> bool:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if client.get("/models", headers={"x-api-key": key}).status_code == status:
                return True
            time.sleep(0.01)
        return False

    path = tmp_path / "keys"
    path.write_text("metadata: the-first-key-of-all\n")
    with serving(store, keys_file=path, reload_interval_s=0.01) as client:
        assert status_becomes("the-first-key-of-all", 200)
        path.write_text("metadata: the-second-key-of-all\n")
        assert status_becomes("the-second-key-of-all", 200)
        assert status_becomes("the-first-key-of-all", 401)


@pytest.mark.parametrize(("group", "method", "path", "body"), REQUESTS)
def test_without_keys_only_the_machine_itself_changes_the_server(
    unlocked: Client, group: Group, method: str, path: str, body: object
) -> None:
    assert unlocked.request(method, path, json=body).status_code == 200
    answer = far(unlocked, method, path, json=body)
    assert answer.status_code == (403 if group is Group.ADMIN else 200)
    assert group is not Group.ADMIN or "same machine" in message(answer, path)


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_models_are_loaded_from_the_machine_itself(unlocked: Client, verb: str) -> None:
    assert far(unlocked, "POST", f"/v2/repository/models/one/{verb}").status_code == 403


def test_a_page_in_a_browser_on_the_machine_does_not_change_the_server(unlocked: Client) -> None:
    assert unlocked.post("/v2/logging", json={}, headers={"origin": "http://page"}).status_code == 403
    assert unlocked.get("/v2/logging", headers={"origin": "http://page"}).status_code == 403


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
@pytest.mark.parametrize(("method", "path", "body"), [row[1:] for row in REQUESTS])
def test_without_keys_pages_of_others_may_run_models_and_nothing_else(
    unlocked: Client, method: str, path: str, body: object, headers: dict[str, str]
) -> None:
    answer = unlocked.request(method, path, json=body, headers=headers)
    if path.endswith("/infer"):
        assert answer.status_code == 200
    else:
        assert answer.status_code == 403
        assert method == "HEAD" or "evil.example" in message(answer, path)


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
def test_without_keys_pages_of_others_may_ask_for_the_health(unlocked: Client, headers: dict[str, str]) -> None:
    assert [unlocked.get(path, headers=headers).status_code for path in HEALTH] == [200] * len(HEALTH)
    others = ["/", "/metrics", "/events", "/infer", "/v2/models/one/infer", "/console/js/api.js", "/health/../models"]
    assert [unlocked.get(path, headers=headers).status_code for path in others] == [403] * len(others)


def test_keys_make_any_host_and_origin_good(locked: Client) -> None:
    headers = {"host": "evil.example", "origin": "https://evil.example", "x-api-key": KEYS[Group.METADATA]}
    assert locked.get("/models", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/infer", "/models/one/infer", "/models", "/v2", "/v2/models/one/infer", "/nowhere"])
def test_a_query_of_too_many_fields_is_refused_in_the_right_shape(unlocked: Client, path: str) -> None:
    for count, is_refused in ((32, False), (33, True), (4000, True)):
        method = "POST" if path.endswith("infer") else "GET"
        answer = unlocked.request(method, f"{path}?{'&'.join(['a=1'] * count)}", json={"inputs": [[1, 1, 1]]})
        assert ("too many fields" in answer.text) is is_refused
        if is_refused:
            found = f"the query has too many fields: found {count}, expected at most 32"
            assert (answer.status_code, message(answer, path)) == (400, found)


@pytest.mark.parametrize(
    ("query", "name"), [("outputs=a&outputs=b", "outputs"), ("version=1&%76ersion=1", "version"), ("a&b=1&a=", "a")]
)
@pytest.mark.parametrize(
    "path", ["/infer", "/models/one/infer", "/graph", "/models", "/v2", "/v2/models/one/infer", "/metrics", "/nowhere"]
)
def test_a_query_field_that_comes_twice_is_refused_in_the_right_shape(
    unlocked: Client, path: str, query: str, name: str
) -> None:
    method = "POST" if path.endswith("infer") else "GET"
    answer = unlocked.request(method, f"{path}?{query}", json={"inputs": [[1, 1, 1]]})
    expected = f"query field '{name}': found 2 times, expected once"
    assert (answer.status_code, message(answer, path)) == (400, expected)


def test_a_key_for_it_changes_the_server_from_anywhere(locked: Client) -> None:
    headers = {"x-api-key": KEYS[Group.ADMIN], "origin": "http://page"}
    assert far(locked, "POST", "/v2/logging", json={}, headers=headers).status_code == 200


def test_a_browser_may_ask_what_it_may_send_before_it_sends_a_key(store: Path) -> None:
    asking = {"origin": "http://page", "access-control-request-method": "GET"}
    asking |= {"access-control-request-headers": "authorization"}
    with serving(store, keys=ALL, cors_origins=("http://page",)) as client:
        assert client.request("OPTIONS", "/models", headers=asking).status_code == 200
        refused = client.get("/models", headers={"origin": "http://page"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "http://page")


def endpoints(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Route):
            yield from ((method, route.path) for method in route.methods or ())


def test_every_route_that_takes_something_is_known_by_what_it_is_for(unlocked: Client) -> None:
    documented = unlocked.get("/openapi.json").json()["paths"]
    every = {(method.upper(), path) for path, operations in documented.items() for method in operations}
    every |= {*endpoints(unlocked.app.router.routes), *((method, path) for method, path, _ in ROUTES)}
    writing = {path: group_of(method, path) for method, path in every if method not in ("GET", "HEAD")}
    versions = "/v2/models/{name}/versions/{version}/infer"
    memory = [f"/v2/{kind}sharedmemory" for kind in ("system", "cuda")]
    assert writing == {
        **dict.fromkeys(
            (
                "/",
                "/infer",
                "/v1/embeddings",
                "/v1/rerank",
                "/v1/audio/transcriptions",
                "/embed",
                "/rerank",
                "/predict",
                "/tokenize",
                "/predictions/{name}",
                "/predictions/{name}/{version}",
                "/v1/models/{name}:predict",
                "/v1/models/{name}/versions/{version}:predict",
                "/models/{name}/infer",
                "/models/{name}/graph/operand",
                "/compare",
                "/v2/models/{name}/infer",
                versions,
            ),
            Group.INFER,
        ),
        **dict.fromkeys([f"{each}/unregister" for each in memory], Group.ADMIN),
        **dict.fromkeys([f"{each}/region/{{region}}/{v}register" for each in memory for v in ("", "un")], Group.ADMIN),
        **dict.fromkeys(("/v2/logging", "/v2/trace/setting", "/v2/models/{name}/trace/setting"), Group.ADMIN),
        **dict.fromkeys([f"/v2/repository/models/{{name}}/{verb}load" for verb in ("", "un")], Group.ADMIN),
        "/models/{name}/tune": Group.ADMIN,
        "/v2/repository/index": Group.METADATA,
    }
    open_to_all = {path for method, path in every if group_of(method, path) is None}
    assert {path for path in open_to_all if path != "/" and not path.startswith("/console/")} == set(HEALTH)
    assert group_of("GET", "/metrics") is Group.METRICS


def test_the_document_says_who_needs_a_key(locked: Client, unlocked: Client) -> None:
    document = locked.get("/openapi.json", headers={"x-api-key": KEYS[Group.METADATA]}).json()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == ("401" in operation["responses"]) == (path not in HEALTH)
    assert "401" not in unlocked.get("/openapi.json").text
