"""Sequences of requests: order, start and end, limits, idle time, memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from app.errors import DeadlineExceededError, QueueFullError, SequenceNotFoundError, TooManySequencesError
from app.memory.reservation import MemoryBudget
from app.models.sequences import Sequences, SequencesConfig, SequenceStep
from tests.patience import PATIENCE_S, limits

LATER_S = 60.0


class Fixture:
    """Sequences with a budget, and a run that counts the requests of each."""

    def __init__(self, total: int = 1 << 20, state_bytes: int = 0, **limits: Any) -> None:
        self.memory = MemoryBudget(total)
        self.sequences = Sequences(SequencesConfig(**limits), state_bytes)

    async def run(
        self,
        id_: int | str,
        *flags: str,
        client: bytes = b"",
        work: Callable[[], Awaitable[None]] | None = None,
        within_s: float = LATER_S,
    ) -> int:
        """Return how many requests of the sequence were successful before this one."""
        step = SequenceStep(client, id_, "start" in flags, "end" in flags)
        async with self.sequences.turn(step, self.memory, time.monotonic() + within_s) as turn:
            before = 0 if turn.states is None else int(turn.states["n"])
            if work is not None:
                await work()
            turn.states = {"n": np.array(before + 1)}
        return before


async def fail() -> None:
    raise ValueError("the run failed")


def test_a_request_continues_with_the_states_of_the_one_before() -> None:
    async def test() -> list[int]:
        on = Fixture()
        return [await on.run(7, "start"), await on.run(7), await on.run(7), await on.run(7, "start"), await on.run(7)]

    assert asyncio.run(test()) == [0, 1, 2, 0, 1]


def test_the_last_request_ends_a_sequence_and_frees_its_memory() -> None:
    async def test() -> None:
        on = Fixture(state_bytes=1000)
        await on.run("a", "start")
        assert on.sequences.active == 1 and on.memory.used > 1000
        assert await on.run("a", "end") == 1
        assert on.sequences.active == 0 and on.memory.used == 0
        with pytest.raises(SequenceNotFoundError, match="'a': not found, expected sequence_start"):
            await on.run("a")
        assert await on.run("b", "start", "end") == 0
        assert on.sequences.active == 0 and on.memory.used == 0

    asyncio.run(test())


def test_clients_with_different_keys_share_no_sequence() -> None:
    async def test() -> None:
        on = Fixture()
        await on.run(1, "start", client=b"first")
        with pytest.raises(SequenceNotFoundError):
            await on.run(1, client=b"second")
        assert await on.run(1, client=b"first") == 1

    asyncio.run(test())


def test_a_number_and_a_text_of_its_digits_are_different_sequences() -> None:
    async def test() -> None:
        on = Fixture()
        await on.run(1, "start")
        with pytest.raises(SequenceNotFoundError):
            await on.run("1")

    asyncio.run(test())


def test_requests_of_one_sequence_run_in_the_order_of_arrival() -> None:
    async def test() -> list[int]:
        on, order = Fixture(), list[int]()

        async def work(number: int) -> None:
            await asyncio.sleep(0.01 * (number % 3))
            order.append(number)

        await on.run(1, "start")
        await asyncio.gather(*(on.run(1, work=lambda n=n: work(n)) for n in range(9)))
        return order

    assert asyncio.run(test()) == list(range(9))


def test_a_turn_without_waiting_continues_a_sequence_that_runs_nothing() -> None:
    async def test() -> None:
        on, step = Fixture(), SequenceStep(b"", 1, is_start=False, is_end=False)
        assert on.sequences.turn_now(step) is None
        assert on.sequences.turn_now(step._replace(is_start=True)) is None
        await on.run(1, "start")

        async def work() -> None:
            assert on.sequences.turn_now(step) is None

        await on.run(1, work=work)
        turn = on.sequences.turn_now(step)
        assert turn is not None and turn.states is not None and turn.states["n"] == 2
        assert await on.run(1) == 2  # a turn that has not ended changes nothing
        turn.states = {"n": np.array(9)}
        on.sequences.end_now(step, turn)
        assert await on.run(1) == 9
        on.sequences.end_now(step._replace(is_end=True), turn)
        assert on.sequences.active == 0 and on.memory.used == 0
        on.sequences.end_now(step, turn)  # the model was unloaded meanwhile
        assert on.sequences.active == 0

    asyncio.run(test())


def test_a_request_that_fails_leaves_the_states_as_they_were() -> None:
    async def test() -> None:
        on = Fixture()
        await on.run(1, "start")
        for flags in ((), ("end",)):
            with pytest.raises(ValueError):
                await on.run(1, *flags, work=fail)
        assert await on.run(1) == 1

    asyncio.run(test())


def test_a_first_request_that_fails_starts_no_sequence() -> None:
    async def test() -> None:
        on = Fixture()
        await on.run(1, "start")
        with pytest.raises(ValueError):
            await on.run(2, "start", work=fail)
        with pytest.raises(SequenceNotFoundError):
            await on.run(2)
        assert on.sequences.active == 1

    asyncio.run(test())


def test_requests_behind_a_last_one_find_no_sequence() -> None:
    async def test() -> list[Any]:
        on = Fixture()
        await on.run(1, "start")
        waiting = (on.run(1, "end", work=lambda: asyncio.sleep(0.01)), on.run(1))
        return await asyncio.gather(*waiting, return_exceptions=True)

    last, behind = asyncio.run(test())
    assert last == 1 and isinstance(behind, SequenceNotFoundError)


def test_a_run_that_outlives_its_request_does_not_change_the_states() -> None:
    async def test() -> int:
        on = Fixture()
        await on.run(1, "start")
        step = SequenceStep(b"", 1, False, False)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), on.sequences.turn(step, on.memory, time.monotonic() + LATER_S) as turn:
                await asyncio.sleep(LATER_S)
        turn.states = {"n": np.array(99)}  # the thread notices the cancellation later
        return await on.run(1)

    assert asyncio.run(test()) == 1


def test_a_request_whose_turn_does_not_come_in_time_is_refused() -> None:
    async def test() -> int:
        on = Fixture()
        await on.run(1, "start")
        slow = asyncio.create_task(on.run(1, work=lambda: asyncio.sleep(0.1)))
        await asyncio.sleep(0)
        with pytest.raises(DeadlineExceededError, match="earlier requests of the sequence"):
            await on.run(1, within_s=0.01)
        await slow
        return await on.run(1)

    assert asyncio.run(test()) == 2


def test_more_sequences_than_allowed_are_refused_and_active_ones_go_on() -> None:
    async def test() -> None:
        on = Fixture(max_active=2, idle_timeout_s=30)
        await on.run(1, "start")
        await on.run(2, "start")
        with pytest.raises(
            TooManySequencesError, match="found 2 active sequences of the model, expected at most 2"
        ) as e:
            await on.run(3, "start")
        assert 28 <= e.value.retry_after_s <= 30
        assert await on.run(1) == 1
        assert await on.run(2, "start") == 0
        await on.run(1, "end")
        assert await on.run(3, "start") == 0

    asyncio.run(test())


def test_states_that_do_not_fit_in_memory_are_refused() -> None:
    async def test() -> None:
        on = Fixture(total=10_000, state_bytes=4_000)
        await on.run(1, "start")
        with pytest.raises(QueueFullError):
            await on.run(2, "start")
        assert on.sequences.active == 1
        await on.run(1, "end")
        await on.run(2, "start")

    asyncio.run(test())


def test_an_idle_sequence_ends_and_frees_its_memory_without_another_request() -> None:
    async def test(idle_timeout_s: float) -> None:
        on = Fixture(idle_timeout_s=idle_timeout_s)
        for id_ in range(5):
            await on.run(id_, "start")
        requests = 1
        while on.sequences.active > 1:
            await asyncio.sleep(idle_timeout_s / 5)
            assert await on.run(3) == requests
            requests += 1
        assert on.sequences.active == 1
        while on.sequences.active:
            await asyncio.sleep(idle_timeout_s / 5)
        assert on.memory.used == 0

    for idle_timeout_s in limits(0.1):
        with suppress(SequenceNotFoundError):  # a busy machine let all five end
            asyncio.run(asyncio.wait_for(test(idle_timeout_s), PATIENCE_S))
            return
    pytest.fail("a sequence ended although it had requests")


def test_a_sequence_with_a_long_run_is_not_idle() -> None:
    async def test() -> int:
        on = Fixture(idle_timeout_s=0.02)
        await on.run(1, "start", work=lambda: asyncio.sleep(0.1))
        return await on.run(1)

    assert asyncio.run(test()) == 1


def test_unloading_ends_all_sequences() -> None:
    async def test() -> None:
        on = Fixture(state_bytes=100)
        await on.run(1, "start")
        await asyncio.to_thread(on.sequences.close)
        assert on.sequences.active == 0 and on.memory.used == 0
        with pytest.raises(SequenceNotFoundError):
            await on.run(1)
        assert await on.run(2, "start") == 0  # a request that had arrived before
        assert on.sequences.active == 0 and on.memory.used == 0

    asyncio.run(test())
