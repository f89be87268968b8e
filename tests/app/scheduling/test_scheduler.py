"""Tests of the scheduler: admission, order, cancellation, and that no request is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import pytest

import engine
from app.errors import DeadlineExceededError, ModelNotReadyError, QueueFullError
from app.log import request_id
from app.scheduling.admission import FEW_REQUESTS
from app.scheduling.job import RunSpec
from app.scheduling.scheduler import Scheduler
from tests.app.scheduling.tasks import Order, Task, group, hold, queue_up, run, soon, until
from tests.patience import limits


def test_a_request_that_finds_the_run_free_is_done_in_one_thread_with_the_callers_context() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        request_id.set("r1")
        task = Task("a", order)
        assert await scheduler.run(task, soon()) == "a by r1"
        assert len(task.threads) == 3 and len(set(task.threads)) == 1 and task.threads[0].startswith("scheduler-model")
        assert task.queue_s >= 0

    run(test)


def test_what_is_quick_is_done_on_the_spot() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        task = Task("a", order, is_quick=True)
        assert scheduler.run_now(task, soon()) == ("a by -",)
        assert set(task.threads) == {threading.current_thread().name} and task.queue_s == 0
        with pytest.raises(ZeroDivisionError):
            scheduler.run_now(Task("b", order, is_quick=True, fails="run"), soon())
        with pytest.raises(DeadlineExceededError):
            scheduler.run_now(Task("c", order, is_quick=True), time.monotonic() - 1)
        slow = Task("slow", order)
        assert scheduler.run_now(slow, soon()) is None
        assert await scheduler.run(slow, soon()) == "slow by -"
        assert slow.threads[-1].startswith("scheduler-model")
        assert scheduler.queued == scheduler.running == 0

    run(test)


def test_nothing_is_done_on_the_spot_where_others_run_or_where_all_is_closed() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        assert scheduler.run_now(Task("a", order, is_quick=True), soon()) is None
        held.release.set()
        assert await first == "held by -"
        scheduler.close()
        assert scheduler.run_now(Task("a", order, is_quick=True), soon()) is None

    run(test)


@pytest.mark.parametrize("step", ["prepare", "run", "finish"])
def test_errors_of_every_step_come_back_to_the_caller_and_others_go_on(step: str) -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        with pytest.raises(ZeroDivisionError):
            await scheduler.run(Task("a", order, fails=step), soon())
        assert await scheduler.run(Task("b", order), soon()) == "b by -"

    run(test)


def test_what_needs_no_run_waits_for_none() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        assert await scheduler.run(Task("known", order, is_answered=True), soon()) == "known by -"
        held.release.set()
        await first
        assert order.runs == [["held"]]

    run(test)


def test_one_more_than_may_wait_is_refused_at_once_and_others_go_on() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        second = await queue_up(scheduler, [Task("b", order)])
        assert (scheduler.running, scheduler.queued) == (1, 1)
        with pytest.raises(
            QueueFullError, match="'model' is busy: 1 requests are waiting, expected at most 1"
        ) as caught:
            await scheduler.run(Task("c", order), soon())
        assert caught.value.headers == {"Retry-After": "1"}
        held.release.set()
        assert await asyncio.gather(first, *second) == ["held by -", "b by -"]
        assert await scheduler.run(Task("free again", order), soon()) == "free again by -"

    run(test, queue=1)


def test_the_lowest_priority_comes_first_then_the_earliest_deadline_then_who_came_first() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        names = ["usual", "late", "first", "second", "usual too"]
        asked = await queue_up(scheduler, [Task(name, order) for name in names], [10, 2**63, 1, 2, 10])
        urgent = asyncio.create_task(scheduler.run(Task("urgent", order), time.monotonic() + 30.0))
        await until(lambda: scheduler.waiting == 6)
        held.release.set()
        await asyncio.gather(first, urgent, *asked)
        assert order.runs == [[name] for name in ("held", "first", "second", "urgent", "usual", "usual too", "late")]

    run(test)


def test_queued_work_of_a_caller_who_left_never_runs_and_frees_its_place_at_once() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        (waiting,) = await queue_up(scheduler, [Task("gone", order)])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert scheduler.queued == 0
        held.release.set()
        await first
        assert await scheduler.run(Task("next", order), soon()) == "next by -"
        assert order.runs == [["held"], ["next"]]

    run(test)


def test_a_thousand_who_left_leave_nothing_behind() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        for _ in range(10):
            waiting = await queue_up(scheduler, [Task("gone", order) for _ in range(100)])
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert scheduler.queued == 0 and len(scheduler._run_queue.ready) < 300
        held.release.set()
        await first

    run(test, queue=200)


def test_running_work_is_told_when_its_caller_left() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        assert not held.cancelled()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert held.cancelled()
        held.release.set()
        await until(lambda: not scheduler.is_busy)
        assert order.finished == []

    run(test)


def test_a_deadline_ends_the_waiting_of_those_that_run_and_of_those_that_wait() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        for limit_s in limits(0.5):
            held = Task("held", order, is_held=True)
            first = asyncio.create_task(scheduler.run(held, time.monotonic() + limit_s))
            while not (held.started.is_set() or first.done() and scheduler.is_empty):
                await asyncio.sleep(0.001)
            if held.started.is_set():
                break
            await asyncio.gather(first, return_exceptions=True)
        with pytest.raises(DeadlineExceededError, match="'model' did not answer within the request's time"):
            await scheduler.run(Task("waits", order), time.monotonic() + 0.05)
        with pytest.raises(DeadlineExceededError):
            await first
        assert held.cancelled()
        held.release.set()
        await until(lambda: not scheduler.is_busy)
        assert await scheduler.run(Task("after", order), soon()) == "after by -"
        assert order.runs == [["held"], ["after"]]

    run(test)


class Late(Task):
    """Task whose deadline passes in one of its steps; it then stops or runs on."""

    def __init__(self, order: Order, step: str, *, stops: bool) -> None:
        super().__init__("late", order)
        self._step, self._stops = step, stops

    def _fail(self, where: str) -> None:
        if where == self._step:
            time.sleep(0.1)
            if self._stops:
                raise engine.RunCancelledError("the run was cancelled")


@pytest.mark.parametrize(
    ("step", "stops"), [("prepare", False), ("prepare", True), ("run", False), ("run", True), ("finish", True)]
)
def test_a_late_request_is_refused_at_the_first_check_that_finds_it(
    step: str, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The loop, which has a clock of its own, is the later one here.
    monkeypatch.setattr(Scheduler, "_expire", lambda self, job: None)

    async def test(scheduler: Scheduler, order: Order) -> None:
        with pytest.raises(DeadlineExceededError, match="'model' did not answer within the request's time"):
            await scheduler.run(Late(order, step, stops=stops), time.monotonic() + 0.05)
        assert await scheduler.run(Task("after", order), soon()) == "after by -"

    run(test)


def test_runs_without_code_hold_up_only_their_own_kind() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        slow = Task("slow", order, RunSpec(is_slow=True), is_held=True)
        first = asyncio.create_task(scheduler.run(slow, soon()))
        await slow.running()
        (second,) = await queue_up(scheduler, [Task("slow too", order, RunSpec(is_slow=True))])
        assert await scheduler.run(Task("quick", order), soon()) == "quick by -"
        assert order.runs == [["quick"]]
        slow.release.set()
        await asyncio.gather(first, second)

    run(test, slow=1)


def test_as_many_run_at_once_as_may() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held = [await hold(scheduler, order, name) for name in "ab"]
        assert scheduler.running == 2
        (third,) = await queue_up(scheduler, [Task("c", order)])
        for task, _ in held:
            task.release.set()
        await asyncio.gather(third, *(asked for _, asked in held))

    run(test, threads=2, runs=2)


def test_other_work_waits_for_its_turn_as_requests_do() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        other = asyncio.create_task(scheduler.call(lambda: order.runs.append(["other"]) or "done", soon()))
        await until(lambda: scheduler.waiting == 1)
        held.release.set()
        assert await asyncio.gather(first, other) == ["held by -", "done"]
        assert order.runs == [["held"], ["other"]]

    run(test)


def test_a_request_that_would_wait_longer_than_its_time_is_refused_at_once_with_when_to_come_again() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        scheduler.step_times.ran(65.2, 1)
        held, first = await hold(scheduler, order)
        with pytest.raises(QueueFullError, match=r"would wait about 65\.2 seconds") as caught:
            await scheduler.run(Task("b", order), soon())
        assert 6 <= int(caught.value.headers["Retry-After"]) < 60  # what is over its time
        held.release.set()
        await first
        # The queue is empty: admit it even after long runs, because only a new run can show that runs are fast again.
        assert await scheduler.run(Task("c", order), soon()) == "c by -"

    run(test)


def test_waiting_is_bounded_by_the_setting_but_not_for_those_that_come_first() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        scheduler.step_times.ran(1.0, 1)
        held, first = await hold(scheduler, order)
        with pytest.raises(QueueFullError, match=r"expected at most 0\.5"):
            await scheduler.run(Task("b", order), soon())
        asked = asyncio.create_task(scheduler.run(Task("c", order), soon(), 1))
        await asyncio.sleep(0)
        held.release.set()
        assert await asyncio.gather(first, asked) == ["held by -", "c by -"]

    run(test, max_wait_s=0.5)


def test_who_would_wait_longer_than_a_second_behind_many_is_refused_and_told_when_to_come_again() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        scheduler.step_times.ran(0.5, 1)
        held, first = await hold(scheduler, order)
        waiting = await queue_up(scheduler, [Task(str(number), order) for number in range(FEW_REQUESTS)])
        assert scheduler.refusal(soon()) is None  # as many may wait for any time
        waiting += await queue_up(scheduler, [Task("last", order)])
        assert scheduler.refusal(soon(), priority=1) is None
        message = "'model' is busy: the request would wait about 13 seconds, expected at most 1"
        with pytest.raises(QueueFullError, match=message) as caught:
            await scheduler.run(Task("late", order), soon())
        assert caught.value.headers["Retry-After"] == "12" and caught.value.detail == {"wait_s": 13.0}
        held.release.set()
        await asyncio.gather(first, *waiting)
        assert await scheduler.run(Task("later", order), soon()) == "later by -"

    run(test)


def test_a_refusal_is_free_without_the_collector_of_cyclic_garbage() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        seen: list[weakref.ref[BaseException]] = []
        scheduler.retire()
        gc.disable()
        try:
            try:
                scheduler.check(soon())
            except ModelNotReadyError as error:
                seen.append(weakref.ref(error))
            assert seen[0]() is None
        finally:
            gc.enable()

    run(test)


def test_runs_that_follow_each_other_say_how_long_many_wait() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        waiting = await queue_up(scheduler, [Task("b", order), Task("c", order)])
        assert scheduler.step_times._item_turnaround_s.value is None
        held.release.set()
        await asyncio.gather(first, *waiting)
        assert scheduler.step_times._item_turnaround_s.value is not None and scheduler._run_queue.began is None

    run(test)


def test_what_left_the_queue_is_no_turn() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        (gone,) = await queue_up(scheduler, [Task("gone", order)])
        scheduler._run_queue.began = 0.0  # as if a run had ended long ago
        gone.cancel()
        first.cancel()
        await asyncio.gather(first, gone, return_exceptions=True)
        held.release.set()
        await until(lambda: not scheduler.is_busy and scheduler._run_queue.began is None)

    run(test)


def test_closed_it_drops_what_waits_and_refuses_what_comes() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        (second,) = await queue_up(scheduler, [Task("b", order)])
        scheduler.close()
        with pytest.raises(ModelNotReadyError, match="the server is stopping"):
            await second
        with pytest.raises(ModelNotReadyError, match="the server is stopping"):
            await scheduler.run(Task("c", order), soon())
        held.release.set()
        assert await first == "held by -"

    run(test)


def test_retired_it_ends_what_it_has_begun_and_its_threads_go() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        held, first = await hold(scheduler, order)
        (second,) = await queue_up(scheduler, [Task("b", order)])
        scheduler.retire()
        with pytest.raises(ModelNotReadyError, match="no longer served"):
            await scheduler.run(Task("c", order), soon())
        held.release.set()
        assert await asyncio.gather(first, second) == ["held by -", "b by -"]
        await until(lambda: not any(each.name.startswith("scheduler-retiring") for each in threading.enumerate()))

    asyncio.run(test(Scheduler("retiring", threads=2, runs=1, queue=10), Order()))


def test_a_hundred_at_once_all_get_their_own_answers() -> None:
    async def test(scheduler: Scheduler, order: Order) -> None:
        asked = [scheduler.run(Task(str(at), order, group()), soon()) for at in range(100)]
        assert await asyncio.gather(*asked) == [f"{at} by -" for at in range(100)]
        assert sum(map(len, order.runs)) == 100

    run(test, threads=4)
