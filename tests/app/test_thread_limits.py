"""Tests of the number of threads: affinity, quota and setting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.thread_limits import BLAS_VARIABLES, ThreadBudget, limit_threads, thread_budget
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("affinity", "quota", "setting", "workers", "threads"),
    [(8, None, None, 1, 8), (8, 2.5, None, 1, 2), (8, 0.5, None, 1, 1), (8, 4.0, 3, 1, 3), (2, None, 16, 1, 2),
     (8, None, None, 3, 2), (2, None, None, 4, 1)],
)  # fmt: skip
def test_the_smallest_limit_decides(
    affinity: int, quota: float | None, setting: int | None, workers: int, threads: int
) -> None:
    assert ThreadBudget(affinity=affinity, quota=quota, setting=setting, workers=workers).threads == threads


def test_the_decision_is_one_line() -> None:
    budget = ThreadBudget(affinity=8, quota=2.5, setting=None)
    assert str(budget) == "2 threads (cores allowed 8, cgroup quota 2.5, setting none)"
    assert str(ThreadBudget(affinity=1, quota=None, setting=4, workers=2)).endswith("setting 4, for each of 2 workers)")


def test_this_process_may_use_the_cores_it_is_bound_to() -> None:
    assert thread_budget(setting=1).threads == 1
    assert thread_budget().affinity == len(os.sched_getaffinity(0))


def test_deciding_imports_neither_numpy_nor_the_engine() -> None:
    code = (
        "import sys; from app.thread_limits import thread_budget\n"
        "thread_budget(); sys.exit('numpy' in sys.modules or 'engine' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=PATIENCE_S, check=False).returncode == 0


def test_what_the_user_has_set_for_blas_stays() -> None:
    environ = {"OMP_NUM_THREADS": "7"}
    limit_threads(2, environ)
    assert environ == dict.fromkeys(BLAS_VARIABLES, "2") | {"OMP_NUM_THREADS": "7"}
