"""How many threads: affinity, quota and setting, as Linux says them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.threads import BLAS_VARIABLES, ThreadBudget, cgroup_quota, limit_threads, thread_budget


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


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_tightest_group_from_here_to_the_root_decides(tmp_path: Path) -> None:
    write(tmp_path, self="0::/pod/container\n")
    write(tmp_path / "root" / "pod", cpu__max="150000 100000\n")
    write(tmp_path / "root" / "pod" / "container", cpu__max="max 100000\n")
    assert cgroup_quota(tmp_path / "self", tmp_path / "root") == 1.5


def test_the_older_kind_of_groups_is_read_too(tmp_path: Path) -> None:
    write(tmp_path, self="5:cpu,cpuacct:/box\n4:memory:/box\n")
    write(tmp_path / "root" / "cpu" / "box", cpu__cfs_quota_us="200000\n", cpu__cfs_period_us="100000\n")
    write(tmp_path / "root" / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cgroup_quota(tmp_path / "self", tmp_path / "root") == 2.0


def test_without_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path / "self", tmp_path) is None


def test_what_the_user_has_set_for_blas_stays() -> None:
    environ = {"OMP_NUM_THREADS": "7"}
    limit_threads(2, environ)
    assert environ == dict.fromkeys(BLAS_VARIABLES, "2") | {"OMP_NUM_THREADS": "7"}
