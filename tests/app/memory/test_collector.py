"""Tests of freezing the heap: frozen objects are not visited, and are still freed on request."""

from __future__ import annotations

import gc
import multiprocessing
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeAlias

import pytest

from app.memory.machine import collect, freeze_heap, freeze_heap_when_due
from tests.patience import PATIENCE_S

Work: TypeAlias = Callable[[], None]


class Ring:
    """Object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(scope="module")
def alone() -> Iterator[Callable[[Work], None]]:
    """Run work in a process with few objects, since collections of the test process are slow."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda work: pool.submit(begun_anew, work).result(PATIENCE_S)


def begun_anew(work: Work) -> None:
    gc.unfreeze()
    work()


def test_a_full_collection_looks_only_at_what_came_after(alone: Callable[[Work], None]) -> None:
    alone(looked_at)


def looked_at() -> None:
    kept = [Ring() for _ in range(1000)]
    before = len(gc.get_objects())
    freeze_heap()
    assert len(gc.get_objects()) < before / 10 and gc.get_freeze_count() >= len(kept)


def test_what_was_set_aside_and_is_no_longer_used_is_freed_whether_it_is_still_used_when_asked_or_not(
    alone: Callable[[Work], None],
) -> None:
    alone(freed)


def freed() -> None:
    ring, busy = Ring(), Ring()
    gone, gone_later = weakref.ref(ring), weakref.ref(busy)
    freeze_heap()
    del ring
    gc.collect()
    assert gone() is not None
    collect()
    assert gone() is None
    del busy  # a request that ran on the old model ends
    gc.collect()
    assert gone_later() is None


def test_after_a_rest_it_is_set_aside_again_and_not_before(alone: Callable[[Work], None]) -> None:
    alone(rested)


def rested() -> None:
    freeze_heap()
    collect(rest_s=3600)
    freeze_heap_when_due()
    assert not gc.get_freeze_count()
    freeze_heap()
    collect(rest_s=-1)
    freeze_heap_when_due()
    assert gc.get_freeze_count()


def test_nothing_is_set_aside_unasked(alone: Callable[[Work], None]) -> None:
    alone(unasked)


def unasked() -> None:
    collect(rest_s=-1)
    freeze_heap_when_due()
    assert not gc.get_freeze_count()
