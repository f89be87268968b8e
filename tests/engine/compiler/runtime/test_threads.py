"""Teams of threads: right answers for all callers at any time, and nothing left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.compiler.runtime import instance
from engine.compiler.runtime.worker_pool import MAX_WAITING, WorkerPool
from tests.engine.compiler.runtime.callers import wrong_answers
from tests.engine.graph.build import built, op
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[4]
MODEL = ROOT / "model_store" / "digits" / "1" / "model.pnnx.param"
RANDOM = np.random.default_rng(4)
WORTH_WAKING = instance.WORTH_WAKING
"""Read before a fixture of all tests sets it to 0."""


def session(threads: int) -> engine.Session:
    return engine.Session(engine.load(MODEL), backend="compiled", threads=threads, cache=None)


def images(count: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return [RANDOM.standard_normal((1, 1, 16, 16)).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_callers_of_one_session_get_their_own_answers(threads: int) -> None:
    shared, inputs = session(threads), images(8)
    wanted = [shared.run([x])[0] for x in inputs]
    assert not wrong_answers(shared, inputs, wanted, times=100)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_thousands_of_short_runs_give_one_answer(threads: int) -> None:
    team, (x,) = session(threads), images(1)
    wanted = team.run([x])[0].tobytes()
    assert {team.run([x])[0].tobytes() for _ in range(5000)} == {wanted}


def test_workers_leave_with_their_session() -> None:
    before = threading.active_count()
    for _ in range(5):
        session(3).run(images(1))
    gc.collect()
    end = time.monotonic() + PATIENCE_S
    while threading.active_count() > before:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_threads_are_woken_only_by_runs_that_they_shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waking one takes as long as the small sizes; sizes of a template differ."""
    before = {*threading.enumerate()}  # those of other tests may end meanwhile

    def helpers() -> int:
        return sum(each.name.startswith("kernel-") and each not in before for each in threading.enumerate())

    monkeypatch.setattr(instance, "WORTH_WAKING", WORTH_WAKING)
    session(2).run(images(1))
    weight = RANDOM.standard_normal((256, 256)).astype(np.float32)
    linear = op("nn.Linear", "linear", "0", "1", in_features=256, out_features=256, bias=False, weight=weight)
    graph = built(op("pnnx.Input", "in0", "", "0"), linear, op("pnnx.Output", "out0", "1"), _0=(None, 256))
    with closing(engine.Session(graph, backend="compiled", threads=2, cache=None)) as dynamic:
        for rows, more in ((2, 0), (3, 0), (400, 1), (3, 1), (2, 1), (401, 1)):
            x = RANDOM.standard_normal((rows, 256)).astype(np.float32)
            dynamic.prepare(specs=[engine.TensorSpec(x.shape, x.dtype)])
            np.testing.assert_allclose(dynamic.run([x])[0], x @ weight.T, rtol=1e-4, atol=1e-4)
            assert helpers() == more


def test_the_interpreter_ends_while_workers_are_parked() -> None:
    script = (
        "import engine, numpy as np, sys\n"
        "s = engine.Session(engine.load(sys.argv[1]), backend='compiled', threads=3, cache=None)\n"
        "print(s.run([np.zeros((1, 1, 16, 16), np.float32)])[0].shape)\n"
    )
    command = [sys.executable, "-c", script, str(MODEL)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout.strip()) == (0, "(1, 10)"), done.stderr


class _Team:
    """Team of one thread; one that collects runs the collector while the pool's lock is held."""

    def __init__(self, pool: WorkerPool, collects: bool = False) -> None:
        self._pool, self._collects = pool, collects
        self.is_dismissed = False

    @property
    def count(self) -> int:
        if self._collects and self._pool._lock.locked():
            gc.collect(0)
        return 1

    def dismiss(self) -> None:
        self.is_dismissed = True


def test_the_collector_may_free_an_instance_while_the_pool_is_locked() -> None:
    pool, ended = WorkerPool(), threading.Event()

    def enter() -> None:
        for _ in range(MAX_WAITING):
            pool.enter(_Team(pool))  # type: ignore[arg-type]
        freed, cycle = _Team(pool), _Cycle()
        pool.enter(freed)  # type: ignore[arg-type]
        weakref.finalize(cycle, pool.leave, freed)
        del cycle
        pool.enter(_Team(pool, collects=True))  # type: ignore[arg-type]
        assert freed.is_dismissed
        pool.enter(_Team(pool))  # type: ignore[arg-type]
        assert freed not in pool._teams
        ended.set()

    threading.Thread(target=enter, daemon=True).start()
    assert ended.wait(PATIENCE_S)


class _Cycle:
    """Object that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self
