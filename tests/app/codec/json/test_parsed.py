"""What was parsed and is not decoded is freed by a thread, in pieces, and stays charged until then."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import numpy as np
import pytest

import engine
from app.codec.json import parsed, pieces
from app.codec.json.body import parse_json_body
from app.codec.json.parsed import Parsed
from app.errors import InvalidRequestError, ServiceError
from app.memory.budget import MemoryBudget
from app.models.lane import Lane
from app.settings import Settings
from app.signature import Signature
from tests.patience import until

SIGNATURE = Signature(
    inputs=(engine.Port(name="in0", operand="0", spec=engine.TensorSpec((None, None), np.dtype(np.float32))),),
    outputs=(),
)
ROWS = [[float(i)] * 100 for i in range(200)]


class Spy:
    """Notes which threads release what was parsed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []

        def noted(value: object, *, is_even: bool = False) -> None:
            self.threads.append(threading.get_ident())
            pieces.dismantle(value, is_even=is_even)

        monkeypatch.setattr(parsed, "dismantle", noted)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def test_what_is_dropped_is_freed_by_a_thread_and_charged_until_then(spy: Spy) -> None:
    budget = MemoryBudget(10**9)
    value: list[Any] = [1.5] * 100_000
    with budget.open() as allowance:
        allowance.charge(1000)
        held = Parsed(value)
        allowance.close()
    assert budget.used == 1000
    del held
    until(lambda: budget.used == 0)
    assert not value
    assert spy.threads
    assert threading.get_ident() not in spy.threads


def test_what_is_decoded_is_freed_where_it_is_decoded(spy: Spy) -> None:
    message = parse_json_body(json.dumps({"inputs": ROWS}).encode(), Settings())
    assert message.decode(SIGNATURE)["in0"].shape == (200, 100)
    assert set(spy.threads) == {threading.get_ident()}


@pytest.mark.parametrize("other", [
    {"model": 5}, {"unknown": 1}, {"image": ""}, {"version": -1}, {"outputs": 7}, {"parameters": []},
])  # fmt: skip
def test_what_is_refused_is_freed_where_it_was_parsed(spy: Spy, other: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        parse_json_body(json.dumps({"inputs": ROWS, **other}).encode(), Settings())
    assert set(spy.threads) == {threading.get_ident()}


def test_many_that_are_dropped_at_once_are_all_freed() -> None:
    budget = MemoryBudget(10**9)
    piles: list[list[Parsed]] = [[] for _ in range(4)]
    for number in range(500):
        with budget.open() as allowance:
            allowance.charge(7)
            piles[number % 4].append(Parsed([0] * 10))
            allowance.close()
    threads = [threading.Thread(target=pile.clear) for pile in piles]
    for thread in threads:
        thread.start()
    until(lambda: budget.used == 0)


class Canary:
    """Says which thread it dies in."""

    def __init__(self, deaths: list[int]) -> None:
        self._deaths = deaths

    def __del__(self) -> None:
        self._deaths.append(threading.get_ident())


@pytest.mark.parametrize("error", [InvalidRequestError("no"), engine.InputError("no"), RuntimeError("no")])
def test_what_a_failed_piece_of_work_held_dies_in_its_thread(error: Exception) -> None:
    deaths: list[int] = []

    def inner() -> None:
        _canary = Canary(deaths)
        try:
            _other = Canary(deaths)
            raise ValueError
        except ValueError:
            raise error from None

    def work(_: object) -> None:
        _mine = Canary(deaths)
        inner()

    async def run() -> None:
        lane = Lane("x", threads=1, queue=1, retry_after_s=1)
        with pytest.raises((ServiceError, engine.EngineError, RuntimeError)):
            await lane.run(work, time.monotonic() + 60)
        assert len(deaths) == 3
        lane.close()

    asyncio.run(run())
    assert threading.get_ident() not in deaths


@pytest.mark.parametrize("end", [b"", b"]", b",", b"nope]}", b'],"model":{"}'])
def test_lists_of_a_text_that_turns_out_to_be_none_are_freed_in_pieces(
    monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    sizes: list[int] = []

    def noted(value: object, *, is_even: bool = False) -> None:
        sizes.append(len(value) if isinstance(value, list) else 0)

    monkeypatch.setattr(pieces, "PIECE", 64)
    monkeypatch.setattr(pieces, "dismantle", noted)
    text = b'{"inputs":[' + b"1,2,3," * 500 + b'4],"version":[5' + end
    with pytest.raises(InvalidRequestError):
        pieces.loads_in_pieces(text)
    assert 1501 in sizes
