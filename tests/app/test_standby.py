"""Who of several workers takes connections."""

from __future__ import annotations

import multiprocessing

from app.standby import Readiness


def test_all_listen_until_one_is_ready_and_then_those_that_are() -> None:
    readiness = Readiness(3)
    assert [readiness.may_accept(index) for index in range(3)] == [True, True, True]
    readiness.set(1, True)
    assert [readiness.may_accept(index) for index in range(3)] == [False, True, False]
    readiness.set(2, True)
    assert [readiness.may_accept(index) for index in range(3)] == [False, True, True]
    readiness.set(1, False)
    readiness.set(2, False)
    assert [readiness.may_accept(index) for index in range(3)] == [True, True, True]


def _be_ready(readiness: Readiness, index: int) -> None:
    readiness.set(index, True)


def test_a_child_process_says_so_to_all() -> None:
    readiness = Readiness(2)
    child = multiprocessing.get_context("spawn").Process(target=_be_ready, args=(readiness, 1))
    child.start()
    child.join()
    assert not readiness.may_accept(0) and readiness.may_accept(1)
