"""Tests of batches: which requests share a run, limits, and isolation of failures."""

from __future__ import annotations

import asyncio

from app.scheduling.job import RunSpec
from app.scheduling.run_queue import split_batch
from app.scheduling.scheduler import Scheduler
from tests.app.scheduling.tasks import Order, Task, group, hold, queue_up, run, soon, until
from tests.patience import PATIENCE_S


def test_those_of_a_group_that_wait_share_a_run_as_far_as_there_is_code_for_it() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        asked = await queue_up(scheduler, [Task(str(at), order, group()) for at in range(7)])
        held.release.set()
        assert await asyncio.gather(first, *asked) == ["held by -", *(f"{at} by -" for at in range(7))]
        assert order.runs == [["held"], ["0", "1", "2", "3"], ["4", "5"], ["6"]]
        assert scheduler.reasons == {"full": 1, "few": 1, "alone": 1}

    run(test)


def test_items_are_counted_not_requests_and_groups_are_not_mixed() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        specs = [group(3), group(name="h"), group(2), group(1), group(name="h"), RunSpec()]
        asked = await queue_up(scheduler, [Task(str(at), order, each) for at, each in enumerate(specs)])
        held.release.set()
        await asyncio.gather(first, *asked)
        # 3 and 2 are more than 4, and no request overtakes another of its group.
        assert order.runs == [["held"], ["0"], ["1", "4"], ["2", "3"], ["5"]]

    run(test)


def test_where_a_shared_run_fails_each_is_run_by_itself_and_only_the_bad_one_gets_the_error() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        tasks = [Task(str(at), order, group(), fails="run" if at == 2 else "") for at in range(4)]
        asked = await queue_up(scheduler, tasks)
        held.release.set()
        answers = await asyncio.gather(first, *asked, return_exceptions=True)
        assert [type(each) for each in answers] == [str, str, str, ZeroDivisionError, str]
        assert order.runs == [["held"], ["0"], ["1"], ["3"]]

    run(test)


def test_one_that_vanishes_from_a_shared_run_does_not_harm_the_others() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        tasks = [Task(str(at), order, group(), is_held=at == 0) for at in range(2)]
        asked = await queue_up(scheduler, tasks)
        held.release.set()
        await tasks[0].running()
        asked[0].cancel()
        await asyncio.gather(asked[0], return_exceptions=True)
        assert not tasks[0].cancelled()  # the other one still wants it
        tasks[0].release.set()
        assert await asked[1] == "1 by -"
        await first
        assert sorted(order.finished) == ["1", "held"]

    run(test)


def test_a_run_that_may_wait_for_others_waits_until_it_is_full_and_lets_others_pass() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        patient = group(sizes=(1, 2), delay_s=PATIENCE_S)
        first = asyncio.create_task(scheduler.run(Task("a", order, patient), soon()))
        await until(lambda: scheduler.waiting == 1)
        assert await scheduler.run(Task("passes", order), soon()) == "passes by -"
        assert await scheduler.run(Task("b", order, patient), soon()) == "b by -"
        assert await first == "a by -"
        assert order.runs == [["passes"], ["a", "b"]]

    run(test)


def test_a_run_that_may_wait_for_others_does_not_wait_for_ever() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        assert await scheduler.run(Task("a", order, group(delay_s=0.01)), soon()) == "a by -"

    run(test)


def test_a_batch_of_any_size_is_run_in_sizes_that_there_is_code_for() -> None:
    assert split_batch(5, (1, 2, 4, 8)) == [4, 1]
    assert split_batch(23, (1, 2, 4, 8)) == [8, 8, 4, 2, 1]
    assert split_batch(3, (1,)) == [1, 1, 1]
    assert split_batch(0, (1, 2)) == []
