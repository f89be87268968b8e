"""Work by pieces: results come in order, several threads help, and cancellation ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from engine.cancellation import cancelling
from engine.errors import RunCancelledError
from engine.memory import blocks
from engine.memory.blocks import side_by_side


@pytest.fixture(params=[1, 2, 64])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(blocks, "available_cores", lambda: request.param)
    yield request.param


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_results_come_in_the_order_of_pieces(cores: int, count: int) -> None:
    assert list(side_by_side(lambda each: each * each, range(count))) == [each * each for each in range(count)]


def test_two_pieces_are_worked_on_at_once_where_there_are_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "available_cores", lambda: 2)
    both = threading.Barrier(2, timeout=60)
    assert len(list(side_by_side(lambda _: both.wait(), "ab"))) == 2


def test_no_more_pieces_are_begun_than_there_is_work_for(cores: int) -> None:
    threads = set(side_by_side(lambda _: threading.current_thread().name, range(50)))
    assert len(threads) <= min(cores, 4)


def test_an_error_of_a_piece_is_the_callers(cores: int) -> None:
    def fail(piece: int) -> int:
        if piece == 3:
            raise OSError("gone")
        return piece

    with pytest.raises(OSError, match="gone"):
        list(side_by_side(fail, range(8)))


def test_it_ends_when_it_is_cancelled(cores: int) -> None:
    done = list[int]()
    with cancelling(lambda: len(done) >= 3), pytest.raises(RunCancelledError):
        for each in side_by_side(lambda each: each, range(100_000)):
            done.append(each)
    assert len(done) == 3
