"""V2 sequences: a model's states are kept between the requests of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.http.v2.messages import tensor
from tests.app.sample_models import write_model
from tests.app.v2_models import RUNNING_SUM, write_running_sum

KEYS = "infer: first-key-of-the-test\ninfer: second-key-of-the-test"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("store")
    write_running_sum(store)
    write_running_sum(store, "two", "[sequences]\nmax_active = 2\nidle_timeout_s = 0.2\n")
    write_running_sum(store, "cached", "[response_cache]\nmax_bytes = 1000000\n")
    write_model(store, "plain", RUNNING_SUM)
    with serving(store) as client:
        yield client


def body(value: Any, **parameters: Any) -> dict[str, Any]:
    rows = np.float32(value).reshape(-1, 2)
    return {"inputs": [tensor("in0", "FP32", rows)], "parameters": parameters}


def send(client: Client, value: Any, model: str = "sums", key: str | None = None, **parameters: Any) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return client.post(f"/v2/models/{model}/infer", json=body(value, **parameters), headers=headers)


def sums(answer: httpx.Response) -> list[float]:
    assert answer.status_code == 200, answer.text
    found: list[float] = next(each for each in answer.json()["outputs"] if each["name"] == "out0")["data"]
    return found


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


@pytest.mark.parametrize("id_", [1, 2**64 - 1, "a text", "7"])
def test_the_requests_of_a_sequence_continue_each_other(client: Client, id_: int | str) -> None:
    flags = [{"sequence_start": True}, {}, {"sequence_start": False, "sequence_end": True}]
    answers = [sums(send(client, [n, 10 * n], sequence_id=id_, **more)) for n, more in enumerate(flags, 1)]
    assert answers == [[1, 10], [3, 30], [6, 60]]
    status, message = problem(send(client, [1, 1], sequence_id=id_))
    assert status == 404 and "expected sequence_start in its first request" in message


def test_the_rows_of_a_request_are_steps_of_the_sequence(client: Client) -> None:
    assert sums(send(client, [1, 1, 2, 2, 3, 3], sequence_id=5, sequence_start=True)) == [1, 1, 3, 3, 6, 6]
    assert sums(send(client, [4, 4], sequence_id=5, sequence_end=True)) == [10, 10]


def test_the_response_cache_does_not_answer_requests_of_a_sequence(client: Client) -> None:
    assert [sums(send(client, [1, 1], "cached")) for _ in range(2)] == [[1, 1], [1, 1]]
    flags = [{"sequence_start": True}, {}, {"sequence_end": True}]
    assert [sums(send(client, [1, 1], "cached", sequence_id=6, **more))[0] for more in flags] == [1, 2, 3]


def test_a_request_without_rows_is_refused(client: Client) -> None:
    for parameters in ({}, {"sequence_id": 4, "sequence_start": True}):
        status, message = problem(send(client, [], **parameters))
        assert status == 400 and "found no rows, expected at least one" in message


def test_a_request_outside_of_a_sequence_begins_with_zeros(client: Client) -> None:
    for parameters in ({}, {"sequence_id": 0}, {"sequence_id": ""}):
        assert sums(send(client, [2, 3], **parameters)) == [2, 3]


def test_a_model_without_states_ignores_the_parameters(client: Client) -> None:
    request = body([1, 2], sequence_id=1)
    request["inputs"].append(tensor("in1", "FP32", np.float32([[1, 1]])))
    assert sums(client.post("/v2/models/plain/infer", json=request)) == [2, 3]


def test_a_request_of_a_sequence_may_not_bring_states(client: Client) -> None:
    request = body([1, 2], sequence_id=1, sequence_start=True)
    request["inputs"].append(tensor("in1", "FP32", np.float32([[1, 1]])))
    status, message = problem(client.post("/v2/models/sums/infer", json=request))
    assert status == 400 and "found the states 'in1', expected none in a sequence" in message
    del request["parameters"]
    assert sums(client.post("/v2/models/sums/infer", json=request)) == [2, 3]


def test_the_metadata_describes_no_states(client: Client) -> None:
    assert [port["name"] for port in client.get("/v2/models/sums").json()["inputs"]] == ["in0"]
    assert [port["name"] for port in client.get("/v2/models/sums/config").json()["input"]] == ["in0"]
    assert len(client.get("/v2/models/plain").json()["inputs"]) == 2


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"sequence_id": 1.5}, "Unable to parse 'sequence_id': found 1.5"),
        ({"sequence_id": True}, "Unable to parse 'sequence_id': found True"),
        ({"sequence_id": -1}, "Unable to parse 'sequence_id'"),
        ({"sequence_id": 2**64}, "Unable to parse 'sequence_id'"),
        ({"sequence_id": "x" * 257}, "at most 256 characters"),
        ({"sequence_id": 1, "sequence_start": 1}, "Unable to parse 'sequence_start': found 1, expected true or false"),
        ({"sequence_start": True}, "expected 'sequence_id' with it"),
        ({"sequence_id": 0, "sequence_end": True}, "expected 'sequence_id' with it"),
    ],
)
def test_a_malformed_parameter_is_refused(client: Client, parameters: dict[str, Any], text: str) -> None:
    status, message = problem(send(client, [1, 1], **parameters))
    assert status == 400 and text in message


def test_a_request_that_does_not_fit_leaves_the_sequence_as_it_was(client: Client) -> None:
    send(client, [1, 1], sequence_id=9, sequence_start=True)
    wrong = {"inputs": [tensor("in0", "FP32", np.ones((1, 3), np.float32))], "parameters": {"sequence_id": 9}}
    assert client.post("/v2/models/sums/infer", json=wrong).status_code == 400
    assert sums(send(client, [1, 1], sequence_id=9, sequence_end=True)) == [2, 2]


def test_too_many_sequences_are_refused_until_one_ends_or_is_idle(client: Client) -> None:
    for id_ in (1, 2):
        send(client, [1, 1], "two", sequence_id=id_, sequence_start=True)
    refused = send(client, [1, 1], "two", sequence_id=3, sequence_start=True)
    assert refused.status_code == 429 and "expected at most 2 (sequences.max_active)" in refused.json()["error"]
    assert refused.headers["retry-after"] == "1"
    shown = client.get("/models/two").json()["sequences"]
    assert shown == {"active": 2, "max_active": 2, "idle_timeout_s": 0.2}
    send(client, [1, 1], "two", sequence_id=1, sequence_end=True)
    assert sums(send(client, [1, 1], "two", sequence_id=3, sequence_start=True)) == [1, 1]
    client.run(asyncio.sleep(0.4))
    assert client.get("/models/two").json()["sequences"]["active"] == 0
    assert client.plane.memory.used == 0
    assert send(client, [1, 1], "two", sequence_id=3).status_code == 404


def test_concurrent_requests_of_a_sequence_each_continue_the_one_before(client: Client) -> None:
    async def many() -> list[httpx.Response]:
        await client.http.post("/v2/models/sums/infer", json=body([0, 0], sequence_id=3, sequence_start=True))
        requests = [client.http.post("/v2/models/sums/infer", json=body([1, 1], sequence_id=3)) for _ in range(20)]
        return await asyncio.gather(*requests)

    assert sorted(sums(answer)[0] for answer in client.run(many())) == list(range(1, 21))


def test_many_interleaved_sequences_are_not_mixed_up(client: Client) -> None:
    count, length = 200, 5
    in_queue = asyncio.Semaphore(60)  # more at once may be refused: 64 requests wait at most

    async def stream(number: int) -> list[float]:
        found = []
        for step in range(length):
            parameters = {"sequence_id": f"s{number}", "sequence_start": not step, "sequence_end": step == length - 1}
            async with in_queue:
                answer = await client.http.post("/v2/models/sums/infer", json=body([number, step], **parameters))
            found.append(sums(answer))
        return [value for row in found for value in row]

    async def all_streams() -> list[list[float]]:
        return await asyncio.gather(*map(stream, range(count)))

    expected = [[x for n in range(1, length + 1) for x in (number * n, n * (n - 1) / 2)] for number in range(count)]
    assert client.run(all_streams()) == expected
    assert client.get("/models/sums").json()["sequences"]["active"] <= 1


def test_clients_with_different_keys_do_not_share_a_sequence(tmp_path: Path) -> None:
    write_running_sum(tmp_path)
    with serving(tmp_path, keys=KEYS) as client:
        first, second = "first-key-of-the-test", "second-key-of-the-test"
        assert sums(send(client, [1, 1], key=first, sequence_id=1, sequence_start=True)) == [1, 1]
        assert send(client, [1, 1], key=second, sequence_id=1).status_code == 404
        assert sums(send(client, [5, 5], key=second, sequence_id=1, sequence_start=True)) == [5, 5]
        assert sums(send(client, [1, 1], key=first, sequence_id=1)) == [2, 2]


def test_unloading_and_loading_a_model_ends_its_sequences(tmp_path: Path) -> None:
    write_running_sum(tmp_path)
    with serving(tmp_path, model_control="explicit", load_model=("sums",)) as client:
        send(client, [1, 1], sequence_id=1, sequence_start=True)
        assert client.plane.memory.used > 0
        client.post("/v2/repository/models/sums/unload", json={})
        assert client.plane.memory.used == 0
        client.post("/v2/repository/models/sums/load", json={})
        assert send(client, [1, 1], sequence_id=1).status_code == 404


def test_a_request_that_times_out_leaves_the_sequence_as_it_was(client: Client) -> None:
    send(client, [1, 1], sequence_id=11, sequence_start=True)
    assert send(client, [1, 1], sequence_id=11, timeout=1).status_code == 504
    assert sums(send(client, [1, 1], sequence_id=11, sequence_end=True)) == [2, 2]


def test_several_workers_refuse_sequences_because_requests_reach_any_of_them(tmp_path: Path) -> None:
    write_running_sum(tmp_path)
    with serving(tmp_path, workers=2) as client:
        status, message = problem(send(client, [1, 1], sequence_id=1, sequence_start=True))
        assert status == 400 and "expected a server with one worker" in message
        assert sums(send(client, [1, 1])) == [1, 1]


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ("[states]\nout1 = 'nope'", "states.out1: found 'nope', expected one of"),
        ("[states]\nnope = 'in1'", "states: found 'nope', expected one of"),
        ("[states]\nout0 = 'in1'\nout1 = 'in1'", "each once"),
        ("[states]\nout1 = 'in1'\n[sequences]\nmax_active = 0", "sequences.max_active: "),
        ("[states]\nout1 = 'in1'\n[sequences]\nidle = 3", "sequences.idle: unknown key"),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_reason(tmp_path: Path, states: str, text: str) -> None:
    write_model(tmp_path, "sums", RUNNING_SUM, config=states)
    with serving(tmp_path) as client:
        assert text in client.get("/models/sums").json()["reason"]
