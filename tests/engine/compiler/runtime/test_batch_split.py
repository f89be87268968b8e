"""Parts of a batch in parallel: the answers of each by itself, and nothing left behind by those that fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import pytest

from engine import RunCancelledError, RuntimeGraph, Session
from engine.compiler.runtime.batch_split import HELPER_THREADS, BatchPolicy
from engine.compiler.runtime.instance import Instance
from engine.pnnx import Operator
from engine.tensor import Array, TensorSpec
from tests.engine.compiler.runtime.callers import wrong_answers
from tests.engine.graph.build import F32, INPUT, built, conv, op
from tests.patience import PATIENCE_S

RANDOM = np.random.default_rng(6)
SHAPE = (1, 3, 24, 24)


def net() -> RuntimeGraph:
    """Return a graph whose batch is the first dimension of one result, and the second of the other."""
    return built(
        INPUT,
        conv("a", "0", "1", (3, 8), padding=(1, 1)),
        conv("b", "1", "2", (8, 5), padding=(1, 1)),
        op("torch.transpose", "turned", "2", "3", dim0=0, dim1=1),
        op("pnnx.Output", "first", "2"),
        op("pnnx.Output", "second", "3"),
        _0=SHAPE,
    )


def batch(count: int) -> Array:
    return RANDOM.standard_normal((count, *SHAPE[1:])).astype(F32)


def parts(whole: Array) -> list[list[Array]]:
    return [[whole[at : at + 1]] for at in range(len(whole))]


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Threads that run parts, of which a graph this small has no need: by the instances that ran."""
    ran: list[int] = []
    run = Instance.run

    def counted(self: Instance, *given: object, **named: object) -> list[Array]:
        ran.append(id(self))
        return run(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("engine.compiler.compiled.available_cores", lambda: 4)
    monkeypatch.setattr("engine.compiler.runtime.batch_split.available_cores", lambda: 4)
    monkeypatch.setattr(BatchPolicy, "is_better", lambda *_: True)
    monkeypatch.setattr(
        BatchPolicy, "parallel_count", lambda self, parts: parts // self.cores * self.cores * (self.cores > 1)
    )
    monkeypatch.setattr(Instance, "run", counted)
    yield ran


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_parts_give_what_each_gives_alone(threads: int, count: int, side_by_side: list[int]) -> None:
    session, x = Session(net(), backend="compiled", threads=threads, cache=None), batch(count)
    each = [session.run(part) for (part,) in zip(parts(x), strict=True)]
    together = session.run([x])
    np.testing.assert_array_equal(together[0], np.concatenate([answer[0] for answer in each], 0))
    np.testing.assert_array_equal(together[1], np.concatenate([answer[1] for answer in each], 1))
    assert len(side_by_side) == 2 * count
    used = len(set(side_by_side))
    assert used == 1 if threads == 1 or count < threads else used > 1


def test_answers_share_no_memory(side_by_side: list[int]) -> None:
    session, x, y = Session(net(), backend="compiled", threads=2, cache=None), batch(4), batch(4)
    first = session.run([x])
    before = [output.copy() for output in first]
    second = session.run([y])
    for output, copy, other in zip(first, before, second, strict=True):
        np.testing.assert_array_equal(output, copy)
        assert not np.shares_memory(output, other)
        output[:] = 0  # it is writable


def test_callers_of_one_session_get_their_own_answers(side_by_side: list[int]) -> None:
    session, inputs = Session(net(), backend="compiled", threads=2, cache=None), [batch(4) for _ in range(6)]
    wanted = [session.run([x])[0] for x in inputs]
    assert not wrong_answers(session, inputs, wanted, times=20)


def test_no_run_waits_for_a_busy_helper_thread(side_by_side: list[int]) -> None:
    session, x = Session(net(), backend="compiled", threads=2, cache=None), batch(4)
    wanted = session.run([x])[0]
    is_free = threading.Event()
    busy = HELPER_THREADS.call([lambda: None if is_free.wait(PATIENCE_S) else None] * 64)
    try:
        np.testing.assert_array_equal(session.run([x])[0], wanted)
    finally:
        is_free.set()
    assert all(each.result(PATIENCE_S) is None for each in busy)


def test_a_system_without_threads_for_us_runs_all_parts_on_one(
    side_by_side: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> Future[None]:
        raise RuntimeError("can't start new thread")

    session, x = Session(net(), backend="compiled", threads=2, cache=None), batch(4)
    wanted = session.run([x])[0]
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.submit", no_thread)
    np.testing.assert_array_equal(session.run([x])[0], wanted)


def test_who_cancels_one_part_cancels_all_and_the_next_run_is_right(side_by_side: list[int]) -> None:
    session, x = Session(net(), backend="compiled", threads=2, cache=None), batch(6)
    wanted = session.run([x])[0]
    side_by_side.clear()
    with pytest.raises(RunCancelledError):
        session.run([x], cancelled=lambda: len(side_by_side) >= 2)
    assert len(side_by_side) < 6
    np.testing.assert_array_equal(session.run([x])[0], wanted)


def lookup() -> list[Operator]:
    table = RANDOM.standard_normal((7, 3)).astype(F32)
    given = {"num_embeddings": 7, "embedding_dim": 3, "sparse": False}
    return [op("nn.Embedding", "table", "0", "1", weight=table, **given), op("pnnx.Output", "out", "1")]


def test_what_one_part_may_not_hold_is_said_as_for_it_alone(side_by_side: list[int]) -> None:
    session = Session(
        built(INPUT, *lookup(), _0=TensorSpec((1, 5), np.dtype(np.int64))), backend="compiled", threads=2, cache=None
    )
    x = RANDOM.integers(0, 7, (4, 5))
    assert session.run([x])[0].shape == (4, 5, 3)
    x[2, 3] = 7
    with pytest.raises(Exception, match="table") as whole:
        session.run([x])
    with pytest.raises(type(whole.value)) as alone:
        session.run([x[2:3]])
    assert str(whole.value) == str(alone.value)


def test_infinities_stay_in_their_part(side_by_side: list[int]) -> None:
    layers: Sequence[Operator] = [conv("a", "0", "1", (16, 16), padding=(1, 1)), op("pnnx.Output", "out", "1")]
    graph = built(INPUT, *layers, _0=(1, 16, 24, 24))
    x = RANDOM.standard_normal((4, 16, 24, 24)).astype(F32)
    session = Session(graph, backend="compiled", threads=2, cache=None)
    session.run([x])
    x[1, 0, 0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        expected = Session(graph, backend="reference").run([x])[0]
    np.testing.assert_allclose(session.run([x])[0], expected, rtol=1e-4, atol=1e-4)
