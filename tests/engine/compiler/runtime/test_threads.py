"""Teams of threads: right answers whoever calls and however often, and nothing left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import engine
from tests.engine.compiler.runtime.callers import wrong_answers
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[4]
MODEL = ROOT / "model_store" / "digits" / "1" / "model.pnnx.param"
RANDOM = np.random.default_rng(4)


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


def test_the_interpreter_ends_while_workers_are_parked() -> None:
    script = (
        "import engine, numpy as np, sys\n"
        "s = engine.Session(engine.load(sys.argv[1]), backend='compiled', threads=3, cache=None)\n"
        "print(s.run([np.zeros((1, 1, 16, 16), np.float32)])[0].shape)\n"
    )
    command = [sys.executable, "-c", script, str(MODEL)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout.strip()) == (0, "(1, 10)"), done.stderr
