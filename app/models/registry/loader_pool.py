"""Threads that load models in parallel, so that one that hangs delays neither the others nor shutdown.

A job is asked to stop when its time is up; if it does not react, it is abandoned and its result discarded. Its slot has
been free since PATIENCE_S. A job stuck in Python is ended by an exception; one stuck in native code stays as a daemon
thread.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import engine
from app.errors import ConfigError, ServiceError
from app.messages import safe_text
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.models.servable import Servable
from app.models.sessions import read_graph
from app.pipelines.nesting import Parts
from app.pipelines.pipeline import Pipeline
from app.progress import compiling
from app.settings import Settings

log = logging.getLogger(__name__)

# A job that takes longer than this no longer occupies one of the parallel slots...
PATIENCE_S: Final = 10.0
# ... as long as no more than this many run.
MAX_THREADS: Final = 16
# Interval at which early jobs are asked again when no job runs.
_EARLY_LOOK_S: Final = 0.05
# Time for an abandoned job to stop by itself.
GRACE_S: Final = 2.0
# Code that may hold locks which an injected exception would not release.
_OUTERMOST: Final = ("_bootstrap", "_bootstrap_inner", "run")
_NOT_IN: Final = ("llvmlite", "importlib", "<frozen importlib", "threading.py", "logging")


class LoadingStoppedError(BaseException):
    """Load that was cancelled or timed out. A BaseException, so that operators do not catch it."""


class Stop:
    """Stop signal of a job.

    Args:
        limit_s: time limit, counted from ``begin``.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._end = float("inf")
        self._is_given_up = False

    def begin(self) -> None:
        """Start the clock of the time limit."""
        self._end = time.monotonic() + self._limit_s

    def give_up(self) -> None:
        """Cancel the job."""
        self._is_given_up = True

    def is_cancelled(self) -> bool:
        """Return whether the time is up or the job was cancelled."""
        return self._is_given_up or time.monotonic() > self._end

    @property
    def left_s(self) -> float:
        """Return the seconds until the time limit."""
        return self._end - time.monotonic()

    def check(self) -> None:
        """Raise if the job should stop.

        Raises:
            LoadingStoppedError: the time is up or the job was cancelled.
        """
        if self.is_cancelled():
            raise LoadingStoppedError


@dataclass(slots=True, eq=False)
class Job:
    """Loading job.

    Args:
        name: name of the model.
        work: does the job and reports the result itself; receives the stop signal.
        gave_up: called once instead, from another thread, if the time is up before the job has ended.
        stop: stop signal.
        needs_bytes: estimated memory.
        is_early: returns whether other jobs should end first.
    """

    name: str
    work: Callable[[Stop], None]
    gave_up: Callable[[], None]
    stop: Stop
    began: float = field(default=0.0)
    thread: threading.Thread | None = field(default=None)
    needs_bytes: int = 0
    is_early: Callable[[], bool] = lambda: False


class LoaderPool:
    """Threads for loading jobs.

    Args:
        size: number of parallel jobs, not counting those that take longer than PATIENCE_S.
        free_bytes: returns the free memory.
    """

    def __init__(self, size: int, free_bytes: Callable[[], int] = lambda: sys.maxsize) -> None:
        self._size = size
        self._free_bytes = free_bytes
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._abandoned = 0
        self._is_watched = False
        self._is_closed = False

    def submit(self, job: Job) -> None:
        """Queue a job, unless the pool is closed."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append(job)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="loading", daemon=True).start()
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until every job has ended or was abandoned, including jobs submitted by jobs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._running)

    def close(self) -> None:
        """Drop queued jobs and ask running ones to stop."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            for job in self._running:
                job.stop.give_up()
            self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Return whether a thread still works, abandoned or not."""
        return bool(self._running) or self._abandoned > 0

    def _watch(self) -> None:
        """Start jobs while there is room, and abandon those whose time is up."""
        with self._changed:
            while self._waiting or self._running:
                while (job := self._next()) is not None:
                    self._start(job)
                self._changed.wait(self._until_next())
                for job in [job for job in self._running if job.stop.left_s <= 0]:
                    self._give_up(job)
            self._is_watched = False
            self._changed.notify_all()

    def _next(self) -> Job | None:
        """Remove and return the first queued job that is not early and whose memory fits; any such job if none runs.

        Memory of running jobs counts in full, although part of it is allocated already: too few jobs cost time, too
        many the
        process.
        """
        if not self._waiting or not self._has_room():
            return None
        ready = [job for job in self._waiting if not job.is_early()]
        if not self._running:
            first = next(iter(ready), None)
            if first is not None:
                self._waiting.remove(first)
            return first
        promised = sum(job.needs_bytes for job in self._running)
        free = self._free_bytes() if any(job.needs_bytes for job in ready) else sys.maxsize
        found = next((job for job in ready if not job.needs_bytes or promised + job.needs_bytes <= free), None)
        if found is not None:
            self._waiting.remove(found)
        return found

    def _has_room(self) -> bool:
        return self._fresh() < self._size and len(self._running) < MAX_THREADS

    def _fresh(self) -> int:
        """Return the number of running jobs younger than PATIENCE_S."""
        now = time.monotonic()
        return sum(now - job.began < PATIENCE_S for job in self._running)

    def _until_next(self) -> float | None:
        """Return the seconds until a job times out, frees its slot, or is looked at again; None without jobs."""
        if not self._running and self._waiting:
            return _EARLY_LOOK_S
        now = time.monotonic()
        moments = [job.stop.left_s for job in self._running]
        moments += [left for job in self._running if (left := job.began + PATIENCE_S - now) > 0]
        return max(0.001, min(moments)) if moments else None

    def _start(self, job: Job) -> None:
        job.began = time.monotonic()
        job.stop.begin()
        self._running.append(job)
        try:
            job.thread = threading.Thread(target=self._run, args=(job,), name=f"load-{job.name}", daemon=True)
            job.thread.start()
        except RuntimeError:  # no thread could be created
            self._running.remove(job)
            job.gave_up()

    def _give_up(self, job: Job) -> None:
        self._running.remove(job)
        self._abandoned += 1
        job.stop.give_up()
        job.gave_up()
        timer = threading.Timer(GRACE_S, _interrupt, (job.thread,))
        timer.daemon = True
        timer.start()

    def _run(self, job: Job) -> None:
        try:
            job.work(job.stop)
        except LoadingStoppedError:
            pass
        except BaseException:  # a thread must free its slot whatever the job raised
            log.exception("loading '%s'", job.name)
        with self._changed:
            if job in self._running:
                self._running.remove(job)
            else:
                self._abandoned -= 1
            self._changed.notify_all()


def _interrupt(thread: threading.Thread | None) -> None:
    """Raise LoadingStoppedError in a thread stuck in Python code."""
    if thread is None or not thread.is_alive() or thread.ident is None:
        return
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _NOT_IN) and frame.f_code.co_name not in _OUTERMOST:
            return
        frame = frame.f_back
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(LoadingStoppedError))


_MAX_WARNINGS: Final = 20


class LoadFailedError(Exception):
    """Version that cannot be served; the text is its public reason."""


def load_model(
    files: ModelFiles,
    version: VersionFiles,
    settings: Settings,
    threads: int,
    stop: Stop,
    *,
    parts: Parts,
    verify: bool = False,
) -> Servable:
    """Build, compile and run a version once.

    Args:
        files: files of the model.
        version: files of the version.
        settings: settings of the server.
        threads: cores per run.
        stop: stop signal, checked between the steps.
        parts: models of the store, for the steps of a pipeline.
        verify: whether to verify the checksums of the weights, because they have just been written.

    Raises:
        LoadFailedError: loading failed for any reason.
    """
    try:
        if files.pipeline is not None:
            version.check_links()
            return Pipeline(files.name, files.pipeline, parts, settings)
        with engine.cancelling(stop.is_cancelled):
            return _load(files, version, settings, threads, stop, verify)
    except (engine.EngineError, ConfigError, ServiceError) as exc:
        raise LoadFailedError(safe_text(str(exc))) from exc
    except LoadingStoppedError as exc:
        raise LoadFailedError("loading was stopped") from exc
    except MemoryError as exc:
        raise LoadFailedError("there is not enough memory") from exc
    except RecursionError as exc:
        raise LoadFailedError("nested too deeply") from exc
    except BaseException as exc:  # a defect of ours, or a plug-in that tries to end the process
        log.exception("model '%s' version %d", files.name, version.number)
        raise LoadFailedError("internal error while loading; the server's log says more") from exc


def _load(
    files: ModelFiles, version: VersionFiles, settings: Settings, threads: int, stop: Stop, verify: bool
) -> Model:
    graph = read_graph(version, settings, strict=files.config.is_strict(settings.strict), verify=verify)
    _log_warnings(files.name, version.number, [str(warning) for warning in graph.warnings])
    stop.check()
    model = Model(
        files.name,
        graph,
        files.config,
        files.labels,
        words=files.words,
        threads=threads,
        settings=settings,
        files=version,
    )
    stop.check()
    if settings.warmup:
        with compiling(files.name) as progress:
            model.warm_up(progress, stop.is_cancelled)
    if model.remark is not None and settings.strict_warmup:
        raise ConfigError(f"{model.remark} (strict_warmup)")
    stop.check()
    return model


def _log_warnings(name: str, number: int, warnings: list[str]) -> None:
    for warning in warnings[:_MAX_WARNINGS]:
        log.warning("model '%s' version %d: %s", name, number, safe_text(warning))
    if len(warnings) > _MAX_WARNINGS:
        log.warning("model '%s' version %d: and %d more warnings", name, number, len(warnings) - _MAX_WARNINGS)
