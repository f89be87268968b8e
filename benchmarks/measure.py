"""Measure one network with a number of threads and a batch: build and check every engine, then let them take turns."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.measuring.contest import ALLOWED_SHARE, turns
from benchmarks.engine_processes import BusyCore, EngineProcess
from benchmarks.record import OURS, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a measurement.

    Args:
        folder: of all networks.
        backend: of our session.
        rounds: turns of every engine; 0 to check the answers only.
        seconds: length of a turn; at least ``least`` runs however long they take.
        busy: engines that also take turns with one core kept busy, where they run on ``busy_threads`` threads.
    """

    folder: Path
    engines: tuple[str, ...]
    backend: str = "auto"
    rounds: int = 7
    seconds: float = 0.3
    least: int = 3
    busy: tuple[str, ...] = ()
    busy_threads: int = 2


def measure(plan: Plan, network: str, threads: int, batch: int) -> list[Record]:
    """Return the records of all engines; one that fails or answers wrongly has its failure and no times."""
    cores = sorted(os.sched_getaffinity(0))
    if threads > len(cores):
        raise ValueError(f"{threads} threads need as many cores; this process may use {len(cores)}")
    with ExitStack() as stack:
        processes = {}
        records = [Record(network=network, threads=threads, batch=batch, engine=engine) for engine in plan.engines]
        for record in records:
            process = stack.enter_context(_built(plan, record, cores[:threads]))
            if not record.failure:
                processes[record.engine] = process
        _take_turns(plan, [record for record in records if not record.failure], processes, cores)
    return records


@contextmanager
def _built(plan: Plan, record: Record, cores: Sequence[int]) -> Iterator[EngineProcess]:
    arguments = _arguments(plan, record, cores)
    with tempfile.TemporaryDirectory(prefix="bench-cache-") as cache, ExitStack() as stack:
        process = _start(stack, arguments, record.threads, Path(cache))
        _note(record, process.first_reply)
        if record.engine == OURS and plan.rounds > 0 and not record.failure:
            with ExitStack() as second:
                warm = _start(second, arguments, record.threads, Path(cache))
                record.warm_build_s = warm.first_reply.get("build_s")
        yield process


def _start(stack: ExitStack, arguments: Sequence[str], threads: int, cache: Path) -> EngineProcess:
    process = EngineProcess(arguments, threads, cache)
    stack.callback(process.close)
    return process


def _arguments(plan: Plan, record: Record, cores: Sequence[int]) -> list[str]:
    named = {
        "engine": record.engine,
        "network": record.network,
        "backend": plan.backend,
        "folder": plan.folder.resolve() / record.network,
        "batch": record.batch,
        "threads": record.threads,
    }
    return [*(f"--{name}={value}" for name, value in named.items()), "--cores", *map(str, cores)]


def _note(record: Record, reply: dict[str, Any]) -> None:
    """Store a worker's report on its first answers."""
    for name in ("failure", "build_s", "second_s", "rss_bytes", "pss_bytes", "error_share"):
        if name in reply:
            setattr(record, name, reply[name])
    _judge(record, reply)


def _judge(record: Record, reply: dict[str, Any]) -> None:
    """Discard the times after a wrong answer, at first or later."""
    share = reply.get("error_share")
    if share is not None and not share <= ALLOWED_SHARE:
        record.failure = f"wrong answer: differs by {share:.1e} of the largest magnitude"
    record.failure = reply.get("failure", record.failure)
    if record.failure:
        record.times_s, record.busy_times_s = [], []


def _take_turns(
    plan: Plan, records: Sequence[Record], processes: dict[str, EngineProcess], cores: Sequence[int]
) -> None:
    by_engine = {record.engine: record for record in records}
    for engine in turns(list(by_engine), plan.rounds):
        _turn(plan, by_engine[engine], processes[engine], None)
        if engine in plan.busy and by_engine[engine].threads == plan.busy_threads:
            _turn(plan, by_engine[engine], processes[engine], cores[0])


def _turn(plan: Plan, record: Record, process: EngineProcess, busy_core: int | None) -> None:
    if record.failure:
        return
    with BusyCore(busy_core) if busy_core is not None else nullcontext():
        reply = process.measure(plan.seconds, plan.least)
    times = record.times_s if busy_core is None else record.busy_times_s
    times += reply.get("times_s", [])
    _judge(record, reply)
