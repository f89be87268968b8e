"""Tests of the memory budget: charged before allocation, released when the last thread is done."""

from __future__ import annotations

import asyncio
import base64
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from contextvars import copy_context
from pathlib import Path

import httpx
import numpy as np
import pytest

import engine
from app.codec.json_lists import check_parsed
from app.errors import DeadlineExceededError, QueueFullError, RequestTooLargeError
from app.images.decode import OpenPicture
from app.memory.machine import budget_bytes
from app.memory.reservation import MemoryBudget, Reservation, charge, charged, check, running
from engine.limits import check_size
from tests.app.client import Client, serving
from tests.app.pictures import encoded, gradient, npy, npz
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model
from tests.engine.pnnx.build import members, param
from tests.patience import PATIENCE_S

MB = 2**20


def test_what_comes_after_the_work_of_a_thread_does_not_end_with_the_threads_time() -> None:
    with MemoryBudget(10).open() as reservation:
        with reservation.working(lambda: True), pytest.raises(DeadlineExceededError):
            check()
        check()


def test_without_a_request_nothing_is_bounded() -> None:
    charge(2**60)
    check()
    with charged(2**60):
        pass


def test_what_a_run_held_is_free_without_the_collector_of_cyclic_garbage() -> None:
    def run(reservation: Reservation) -> None:
        with reservation, reservation.working(lambda: False), running(10):
            check_size((1,), engine.TensorSpec((1,), np.dtype("float32")).dtype)

    reservation = MemoryBudget(100).open()
    seen = weakref.ref(reservation)
    gc.disable()
    try:
        copy_context().run(run, reservation)
        del reservation
        assert seen() is None
    finally:
        gc.enable()


def test_what_can_never_fit_is_refused_for_good_and_what_does_not_fit_now_for_now() -> None:
    budget = MemoryBudget(100)
    first, second = budget.open(), budget.open()
    first.charge(60)
    with pytest.raises(RequestTooLargeError, match="found about 101 bytes, expected at most 100"):
        second.charge(101)
    with pytest.raises(QueueFullError, match="other requests use the memory"):
        second.charge(41)
    first.close()
    second.charge(41)
    assert budget.used == 41


def test_bodies_that_still_arrive_leave_half_for_those_that_are_there() -> None:
    budget = MemoryBudget(100)
    first, second = budget.open(), budget.open()
    first.charge(30, arriving=True)
    with pytest.raises(QueueFullError):
        second.would_fit(21, arriving=True)
    first.arrived()
    second.charge(50, arriving=True)
    assert budget.used == 80


def test_the_last_user_gives_back() -> None:
    returned: list[int] = []
    budget = MemoryBudget(100, on_large_return=returned.append)
    reservation = budget.open()
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with reservation.working(lambda: False):
            reservation.charge(10)
            entered.set()
            assert leave.wait(PATIENCE_S)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(PATIENCE_S)
    reservation.close()
    assert budget.used == 10
    leave.set()
    thread.join()
    assert budget.used == 0 and returned[-1] == 10


def test_abandoned_work_is_stopped_at_its_next_check() -> None:
    reservation = MemoryBudget(100).open()
    with reservation, reservation.working(lambda: True), pytest.raises(DeadlineExceededError):
        check()


def test_the_budget_is_a_share_of_what_there_is_and_shared_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.total_memory_bytes", lambda: 2**30)
    assert budget_bytes(None) == 2**28
    assert budget_bytes(None, workers=4) == 2**26
    assert budget_bytes(1000, workers=4) == 250


@pytest.mark.parametrize("unit", [b"[]", b"[[[]]]", b"1", b"1.5", b"{}", b'{"a":1}', b'""', b"[1,2]", b"null"])
def test_a_jsons_cost_is_counted_whatever_it_is_made_of(unit: bytes) -> None:
    """Compare with the measured memory of orjson and numpy; a list is 56 bytes and a reference from another."""
    count = 1000
    budget = MemoryBudget(10**9)
    with budget.open():
        check_parsed(b"[" + b",".join([unit] * count) + b"]")
        assert budget.used >= count * (64 * unit.count(b"[") + 16)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    write_model(folder, "open", elementwise("mul(@0,1)", "(?,3,?,?)f32"), config='[preprocess]\nresize = "none"\n')
    write_model(folder, "wait", through("test.Wait", "(?,3)f32"))
    return folder


def small(store: Path, limit: int, **more: object) -> object:
    return serving(store, warmup=False, max_bytes_in_flight=limit, backend="reference", **more)


def ends_empty(client: Client) -> bool:
    return client.plane.memory.used == 0


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"inputs": [' + b",".join([b"[]"] * 50_000) + b"]}", "application/json"),
        (npz(x=np.zeros((1, 3, 600, 600), np.float32), packed=True), "application/x-npz"),
        (npy(np.zeros((1, 3, 250, 250), np.float32)), "application/x-npy"),
        (bytes(3 * MB), "application/x-npy"),
    ],
    ids=["json", "unpacked", "run", "body"],
)
def test_a_request_that_takes_more_than_there_is_is_too_large(store: Path, body: bytes, content_type: str) -> None:
    with small(store, 2 * MB) as client:  # type: ignore[attr-defined]
        answer = client.post("/models/open/infer", content=body, headers={"content-type": content_type})
        assert answer.status_code == 413 and answer.json()["error"]["code"] == "too_large", answer.text
        assert "memory" in answer.text and ends_empty(client)


def test_a_good_request_leaves_nothing_behind(store: Path) -> None:
    with small(store, 8 * MB) as client:  # type: ignore[attr-defined]
        for _ in range(3):
            answer = client.post("/models/open/infer", content=npy(np.ones((1, 3, 20, 20), np.float32)),
                                 headers={"content-type": "application/x-npy"})  # fmt: skip
            assert answer.status_code == 200 and ends_empty(client)


async def slowly(first: bytes, entered: asyncio.Event, leave: asyncio.Event) -> AsyncIterator[bytes]:
    yield first
    entered.set()
    await leave.wait()


def test_half_sent_bodies_are_refused_beyond_what_there_is_and_do_not_stop_small_ones(store: Path) -> None:
    async def attack(client: Client) -> tuple[list[int], int]:
        leave = asyncio.Event()
        statuses: list[int] = []

        async def half() -> None:
            answer = await client.http.post(
                "/models/open/infer", content=slowly(bytes(MB), asyncio.Event(), leave),
                headers={"content-type": "application/x-npy", "content-length": str(3 * MB)},
            )  # fmt: skip
            statuses.append(answer.status_code)
            if answer.status_code == 429:
                assert answer.headers["retry-after"] == "1" and answer.headers["connection"] == "close"

        halves = [asyncio.create_task(half()) for _ in range(12)]
        while len(statuses) < 8:
            await asyncio.sleep(0)
        good = await client.http.post("/models/open/infer", content=npy(np.ones((1, 3, 2, 2), np.float32)),
                                      headers={"content-type": "application/x-npy"})  # fmt: skip
        leave.set()
        await asyncio.gather(*halves)
        return statuses, good.status_code

    with small(store, 10 * MB) as client:  # type: ignore[attr-defined]
        statuses, good = client.run(attack(client))
        assert good == 200 and statuses.count(429) >= 7 and ends_empty(client)


def test_what_a_vanished_client_left_running_stays_counted_until_it_ends(store: Path) -> None:
    async def vanish(client: Client) -> int:
        task = asyncio.create_task(client.http.post("/models/wait/infer", json={"inputs": [[1, 2, 3]]}))
        await asyncio.to_thread(TURNSTILE.wait_until_entered)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return client.plane.memory.used

    with small(store, 10 * MB) as client:  # type: ignore[attr-defined]
        assert client.run(vanish(client)) > 0
        TURNSTILE.let_through()
        while client.plane.is_busy:
            client.run(asyncio.sleep(0.01))
        assert ends_empty(client)


def test_answers_are_sent_whole_in_pieces(store: Path) -> None:
    x = np.random.default_rng(0).random((1, 3, 700, 700), np.float32)
    with serving(store, warmup=False, backend="reference") as client:
        answer = client.post("/models/open/infer", content=npy(x),
                             headers={"content-type": "application/x-npy", "accept": "application/x-npz"})  # fmt: skip
        assert int(answer.headers["content-length"]) == len(answer.content) > 4 * MB
        assert isinstance(answer, httpx.Response) and ends_empty(client)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_run_that_is_too_dear_is_refused_before_a_picture_is_decoded(
    store: Path, monkeypatch: pytest.MonkeyPatch, format: str, count: int
) -> None:
    asked: list[tuple[int, ...]] = []

    def estimate(self: engine.Session, inputs: dict[str, np.ndarray]) -> int:
        asked.extend(array.shape for array in inputs.values())
        return 1 << 50

    def decode(*_: object) -> None:
        raise AssertionError("it was decoded")

    picture = base64.b64encode(encoded(gradient(40, 30), format)).decode()
    with small(store, 100 * MB) as client:  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(engine.Session, "estimate_bytes", estimate)
            patch.setattr(OpenPicture, "decode", decode)
            answer = client.post("/models/open/infer", json={"inputs": [{"image": picture}] * count})
        assert answer.status_code == 413 and "memory" in answer.text, answer.text
        assert asked == [(count, 3, 30, 40)] and ends_empty(client)
        assert client.post("/models/open/infer", json={"image": picture}).status_code == 200


PADDED = [
    "pnnx.Input in0 0 1 0 #0=(2,2)f32",
    "pnnx.Input in1 0 1 1 #1=(4)i64",
    "Pad pad 2 1 0 1 2 mode=constant $input=0 $pads=1",
    "pnnx.Output out 1 0 2",
]


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_what_values_ask_for_is_charged_before_it_is_made(backend: str, tmp_path: Path) -> None:
    """Pad by amounts in the request, which determine the size of the result."""
    folder = tmp_path / "padded" / "1"
    folder.mkdir(parents=True)
    (folder / "model.pnnx.param").write_bytes(param(PADDED))
    (folder / "model.pnnx.bin").write_bytes(members({}))
    with serving(tmp_path, warmup=False, max_bytes_in_flight=20 * MB, backend=backend) as client:

        def status(columns: int) -> int:
            inputs = {"in0": [[1, 2], [3, 4]], "in1": [0, 0, 0, columns]}
            answer = client.post("/infer", json={"inputs": inputs, "outputs": []})
            if answer.status_code == 413:
                assert "too much memory" in answer.json()["error"]["message"]
            return answer.status_code

        assert [status(columns) for columns in (10, 10**5, 10**7, 10**9, 10)] == [200, 200, 413, 413, 200]
        assert client.plane.memory.used == 0


def test_a_run_that_turns_out_larger_holds_more_and_gives_all_of_it_back() -> None:
    budget = MemoryBudget(1000)
    reservation = budget.open()
    with reservation:
        with running(100):
            check_size((20, 5), np.dtype(np.float32))
            assert budget.used == 800
            check_size((10,), np.dtype(np.float32))
            assert budget.used == 800
        assert budget.used == 0
        with pytest.raises(RequestTooLargeError), running(100):
            check_size((1000,), np.dtype(np.float32))
        assert budget.used == 0
        with pytest.raises(ZeroDivisionError), running(100):
            raise ZeroDivisionError
    check_size((1000,), np.dtype(np.float32))
