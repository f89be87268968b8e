"""Execution of the steps of one model's jobs, in any of its threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import engine
from app.scheduling.admission import StepTimes
from app.scheduling.job import Job, RunSpec, Stage, Work
from app.scheduling.run_queue import RunQueue, items_of

# Answers that take longer are finished by other threads during the next run; for others waking a thread costs more.
_LONG_S: Final = 0.0005


class Worker:
    """Executor of the steps, called by any of the model's threads.

    Args:
        run_queue: the model's jobs.
        step_times: receives the duration of each step.
        lock: held while run_queue and step_times are used.
        wake: wakes another thread; called with the lock held.
    """

    def __init__(
        self, run_queue: RunQueue, step_times: StepTimes, lock: threading.Lock, wake: Callable[[], None]
    ) -> None:
        self._run_queue = run_queue
        self._step_times = step_times
        self._lock = lock
        self._wake = wake

    def prepare(self, job: Job, work: Work) -> None:
        """Prepare a request, then queue it for its run, or finish it when it needs none."""
        start = time.perf_counter()
        run_spec: RunSpec | None = None
        error: BaseException | None = None
        try:
            run_spec = job.do(work.prepare)
        except BaseException as exc:
            error = self._reported_error(job, exc)
        with self._lock:
            self._run_queue.preparing -= 1
            self._step_times.prepare_s.add(time.perf_counter() - start)
            if error is not None or job.token.is_cancelled():
                self._run_queue.over(job)
            elif run_spec is not None:
                if run_spec.items:
                    self._step_times.items.add(run_spec.items)
                job.run_spec = run_spec
                self._run_queue.wait(job)
                return  # this thread takes it next if a run may begin
        if error is not None or job.stage is Stage.OVER:
            job.resolve(error=error or self._run_queue.deadline_error())
        else:
            self.finish(job, job.queue_s)

    def run(self, jobs: list[Job], kind: int) -> None:
        """Run requests, several of them as one batch, and finish at least the first."""
        queue, start = self._run_queue, time.perf_counter()
        failed = self._compute(jobs)
        now = time.perf_counter()
        with self._lock:
            queue.end_run(jobs, kind)
            if not kind:
                if not failed:
                    self._step_times.ran(
                        now - start, items_of(jobs), None if queue.began is None else now - queue.began
                    )
                queue.began = now if queue.ready or queue.arrived else None
            for job in failed:
                self._run_queue.over(job)
            done = [job for job in jobs if job not in failed]
            is_long = len(done) > 1 and (self._step_times.finish_s.value or 0.0) > _LONG_S
            first, rest = (done[:1], done[1:]) if is_long else (done, [])
            queue.to_finish.extend((job, job.queue_s) for job in rest)
            # Waking a thread costs more than finishing a short answer, which this thread does before it looks for more.
            if not self._step_times.is_quick and (queue.ready or queue.slow or queue.arrived):
                self._wake()
            for _ in rest:
                self._wake()
        for job, error in failed.items():
            job.resolve(error=error)
        for job in first:
            self.finish(job, job.queue_s)

    def _compute(self, jobs: list[Job]) -> dict[Job, BaseException]:
        """Run jobs, together if possible, and return the errors of those that failed."""
        if len(jobs) > 1 and self._compute_together(jobs):
            return {}
        failed: dict[Job, BaseException] = {}
        for job in jobs:
            if job.token.is_cancelled():
                failed[job] = self._run_queue.deadline_error()
                continue
            try:
                assert job.work is not None
                job.do(partial(job.work.run, job.token.is_cancelled))
            except BaseException as exc:
                failed[job] = self._reported_error(job, exc)
        return failed

    def _reported_error(self, job: Job, error: BaseException) -> BaseException:
        """Return the error to report: the passed deadline in place of the cancellation that it caused."""
        is_late = isinstance(error, engine.RunCancelledError) and job.token.is_cancelled()
        return self._run_queue.deadline_error() if is_late else error

    def _compute_together(self, jobs: list[Job]) -> bool:
        """Run jobs as one batch and return whether that worked; one bad request must not fail the others."""

        def is_cancelled() -> bool:
            return all(job.token.is_cancelled() for job in jobs)

        works = [job.work for job in jobs if job.work is not None]
        try:
            jobs[0].do(partial(works[0].run_with, works[1:], is_cancelled), is_cancelled)
        except BaseException:
            return False
        return True

    def finish(self, job: Job, queue_s: float) -> None:
        """Make an answer and resolve the job's future."""
        result: Any = None
        error: BaseException | None = None
        start = time.perf_counter()
        try:
            assert job.work is not None
            if job.token.is_cancelled():  # the event loop may be late with its own timer
                raise self._run_queue.deadline_error()
            result = job.do(partial(job.work.finish, queue_s))
        except BaseException as exc:
            error = self._reported_error(job, exc)
        with self._lock:
            self._step_times.finish_s.add(time.perf_counter() - start)
            self._run_queue.over(job)
        job.resolve(result, error)
