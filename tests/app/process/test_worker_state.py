"""Tests of which workers take connections."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path

from app.process.server import build
from app.process.workers import Progress, Readiness
from app.settings import Settings
from tests.app.sample_models import elementwise, write_model
from tests.patience import PATIENCE_S

LOADING, LOADED, READY = Progress


def accepting(readiness: Readiness) -> list[bool]:
    return [readiness.may_accept(index) for index in range(3)]


def test_all_listen_until_one_is_ready_and_then_those_that_are() -> None:
    readiness = Readiness(3)
    assert accepting(readiness) == [True, True, True]
    readiness.set(1, READY)
    assert accepting(readiness) == [False, True, False]
    readiness.set(2, READY)
    assert accepting(readiness) == [False, True, True]
    readiness.clear(1)
    readiness.set(2, LOADING)
    assert accepting(readiness) == [True, True, True]


def test_one_that_loads_leaves_connections_to_one_that_failed_to_load_all() -> None:
    readiness = Readiness(3)
    readiness.set(0, LOADED)
    readiness.set(2, LOADED)
    assert accepting(readiness) == [True, False, True]
    readiness.set(1, READY)
    assert accepting(readiness) == [False, True, False]


def test_it_is_settled_when_none_listens_who_should_not() -> None:
    readiness = Readiness(3)
    assert readiness.open(0) and readiness.open(1)
    assert readiness.is_settled()
    readiness.set(1, READY)
    assert not readiness.is_settled()
    assert not readiness.open(2)
    readiness.close(0)
    assert readiness.is_settled()
    readiness.set(0, READY)
    assert readiness.open(0)
    readiness.set(0, LOADING)
    assert not readiness.is_settled()
    readiness.clear(0)
    assert readiness.is_settled()


def _be_ready(readiness: Readiness, index: int) -> None:
    readiness.set(index, READY)


def test_a_child_process_says_so_to_all() -> None:
    readiness = Readiness(2)
    child = multiprocessing.get_context("spawn").Process(target=_be_ready, args=(readiness, 1))
    child.start()
    child.join()
    assert not readiness.may_accept(0) and readiness.may_accept(1)


def test_a_worker_that_waits_for_some_models_only_is_no_further_than_one_that_has_loaded_all(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    server = build(Settings(store=tmp_path, required=("one",)), None, (Readiness(2), 0))
    server.plane.store.load()
    assert server._progress() is READY
    server.plane.store.is_loaded = False
    assert server.plane.unready_reason() is None and server._progress() is LOADING


def test_the_banner_waits_for_one_that_listens_and_has_yet_to_hear_that_this_one_is_ready(tmp_path: Path) -> None:
    """Let two loading workers listen; this one is ready first, and the other notices at its next check."""
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    readiness = Readiness(2)
    server = build(Settings(store=tmp_path), None, (readiness, 0))
    server.plane.store.load()
    server.plane.loaded.set()
    server.servers = [None]  # type: ignore[list-item]  # it listens; on what does not matter here
    assert readiness.open(0) and readiness.open(1)

    async def settled() -> list[bool]:
        task = asyncio.create_task(server._settle())
        seen = []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen.append(task.done())
        assert not readiness.may_accept(1)
        readiness.close(1)
        await asyncio.wait_for(task, PATIENCE_S)
        return [*seen, task.done()]

    assert asyncio.run(settled()) == [False, True]
