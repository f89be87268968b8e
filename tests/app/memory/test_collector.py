"""What is set aside is looked at no more, and is freed all the same when it is asked for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from app.memory.collector import collect, set_aside, set_aside_when_due


class Ring:
    """Refers to itself, as a graph does."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_a_full_collection_looks_only_at_what_came_after() -> None:
    kept = [Ring() for _ in range(1000)]
    before = len(gc.get_objects())
    set_aside()
    assert len(gc.get_objects()) < before / 10 and gc.get_freeze_count() >= len(kept)


def test_what_was_set_aside_and_is_no_longer_used_is_freed_whether_it_is_still_used_when_asked_or_not() -> None:
    ring, busy = Ring(), Ring()
    gone, gone_later = weakref.ref(ring), weakref.ref(busy)
    set_aside()
    del ring
    gc.collect()
    assert gone() is not None
    collect()
    assert gone() is None
    del busy  # a request that ran on the old model ends
    gc.collect()
    assert gone_later() is None


def test_after_a_rest_it_is_set_aside_again_and_not_before() -> None:
    set_aside()
    collect(rest_s=3600)
    set_aside_when_due()
    assert not gc.get_freeze_count()
    set_aside()
    collect(rest_s=-1)
    set_aside_when_due()
    assert gc.get_freeze_count()


def test_nothing_is_set_aside_unasked() -> None:
    collect(rest_s=-1)
    set_aside_when_due()
    assert not gc.get_freeze_count()
