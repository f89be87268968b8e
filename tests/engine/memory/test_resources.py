"""One reader of cores and memory, for either version of control groups, nested, limited or damaged."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.resources import available_cores, cpu_quota, free_memory_bytes, total_memory_bytes

GIB: Final = 1 << 30
MEMINFO: Final = "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:    6291456 kB\n"
PROJECT: Final = Path(__file__).parents[3]


def tree(root: Path, **files: str | bytes) -> Path:
    """A file system with these files; ``__`` stands for a slash, of names that hold dots the values say them."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def group(root: Path, path: str, **files: str) -> None:
    folder = root / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"memory.{name}").write_text(content + "\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def both(root: Path) -> tuple[int, int]:
    return total_memory_bytes(root), free_memory_bytes(root)


def test_the_tightest_group_from_here_to_the_root_decides(tmp_path: Path) -> None:
    root = tree(tmp_path, proc__self__cgroup="0::/pod/container\n")
    write(root / "sys/fs/cgroup/pod/cpu.max", "150000 100000\n")
    write(root / "sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
    assert cpu_quota(root) == 1.5


def test_quotas_of_the_first_version_are_read_too(tmp_path: Path) -> None:
    root = tree(tmp_path, proc__self__cgroup="5:cpu,cpuacct:/box\n4:memory:/box\n")
    for path, quota in (("box", "200000\n"), ("", "-1\n")):
        write(root / "sys/fs/cgroup/cpu" / path / "cpu.cfs_quota_us", quota)
        write(root / "sys/fs/cgroup/cpu" / path / "cpu.cfs_period_us", "100000\n")
    assert cpu_quota(root) == 2.0


@pytest.mark.parametrize("cgroup", ["", "0::/of/the/host\n", "0::/../..\n"])
def test_in_a_container_the_quota_at_the_top_is_the_own_one(tmp_path: Path, cgroup: str) -> None:
    root = tree(tmp_path, proc__self__cgroup=cgroup)
    write(root / "sys/fs/cgroup/cpu.max", "50000 100000\n")
    assert cpu_quota(root) == 0.5


def test_without_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (2.5, 2), (0.5, 1), (16.0, 8)])
def test_a_quota_is_rounded_down_to_at_least_one_core(
    quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.memory.resources.affinity", lambda: 8)
    monkeypatch.setattr("engine.memory.resources.cpu_quota", lambda: quota)
    assert available_cores() == cores


def test_a_machine_without_groups(tmp_path: Path) -> None:
    assert both(tree(tmp_path, proc__meminfo=MEMINFO)) == (8 * GIB, 6 * GIB)


@pytest.mark.parametrize("limited", ["", "pod", "pod/box"])
def test_a_limit_of_any_group_of_the_second_version_around_the_process_holds(tmp_path: Path, limited: str) -> None:
    root = tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/pod/box\n")
    for path in ("", "pod", "pod/box"):
        group(root, path, max="max", current=str(GIB))
    group(root, limited, max=str(2 * GIB), stat=f"anon 5\ninactive_file {GIB // 4}\n")
    assert both(root) == (2 * GIB, GIB + GIB // 4)


@pytest.mark.parametrize("limited", ["", "docker", "docker/ab"])
def test_a_limit_of_any_group_of_the_first_version_around_the_process_holds(tmp_path: Path, limited: str) -> None:
    cgroup = "12:cpu,cpuacct:/else\n4:memory:/docker/ab\n0::/\n"
    root = tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup=cgroup)
    for path in ("", "docker", "docker/ab"):
        group(root, f"memory/{path}", limit_in_bytes=str(2**63 - 4096), usage_in_bytes=str(GIB))
    group(root, f"memory/{limited}", limit_in_bytes=str(2 * GIB), stat=f"total_inactive_file {GIB // 2}\n")
    assert both(root) == (2 * GIB, GIB + GIB // 2)


@pytest.mark.parametrize(("place", "name"), [("", "max"), ("memory", "limit_in_bytes")])
@pytest.mark.parametrize("cgroup", [None, "0::/of/the/host\n4:memory:/of/the/host\n", "0::/../..\n4:memory:/../x\n"])
def test_in_a_container_the_top_is_the_own_group(tmp_path: Path, place: str, name: str, cgroup: str | None) -> None:
    root = tree(tmp_path, proc__meminfo=MEMINFO, **({} if cgroup is None else {"proc__self__cgroup": cgroup}))
    group(root, place, **{name: str(GIB)})
    assert both(root) == (GIB, GIB)


def test_the_limit_from_which_a_group_is_slowed_down_is_one(tmp_path: Path) -> None:
    root = tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/\n")
    group(root, "", max=str(2 * GIB), high=str(GIB), current="0")
    assert both(root) == (GIB, GIB)


def test_the_least_of_machine_group_and_process_counts(tmp_path: Path) -> None:
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max data size             {GIB}           unlimited            bytes     \n"
        "Max address space         unlimited            unlimited            bytes     \n"
    )
    root = tree(tmp_path, proc__meminfo=MEMINFO, proc__self__limits=limits, proc__self__statm="900 5 5 5 0 100 0\n")
    group(root, "", max=str(2 * GIB))
    assert both(root) == (GIB - 100 * resource.getpagesize(),) * 2


def test_where_nothing_can_be_found_out_something_is_assumed(tmp_path: Path) -> None:
    assert both(tmp_path) == (4 * GIB, 4 * GIB)


def test_a_group_that_is_full_has_nothing_left(tmp_path: Path) -> None:
    root = tree(tmp_path, proc__meminfo=MEMINFO)
    group(root, "", max=str(GIB), current=str(3 * GIB))
    assert both(root) == (GIB, 0)


garbage = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"", b"max", b"-1", b"1e9", b"\xd9\xa1", b"9" * 30, b"0", b"0 0", b"MemTotal:", b"MemTotal: x"]),
    st.sampled_from([b"0:", b"0::", b"::", b"0::/\x00", b"4:memory", b"4:memory:" + b"/a" * 5000, b"0::/a\n" * 99]),
    st.sampled_from([b"Max address space", b"Max data size -1 x", b"Max address space unlimited"]),
)


@given(contents=st.lists(garbage, min_size=10, max_size=10))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_garbage_limits_nothing_and_breaks_nothing(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("garbage")
    places = ["proc/meminfo", "proc/self/cgroup", "proc/self/limits", "proc/self/statm"]
    places += [f"sys/fs/cgroup/{name}" for name in ("memory.max", "memory.current", "memory/memory.limit_in_bytes")]
    places += ["sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/cpu.cfs_period_us"]
    for place, content in zip(places, contents, strict=True):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content)
    total, free = both(root)
    assert total > 0 and 0 <= free <= total
    quota = cpu_quota(root)
    assert quota is None or quota > 0


def test_folders_in_place_of_files_limit_nothing(tmp_path: Path) -> None:
    for place in ("proc/meminfo", "proc/self/cgroup", "sys/fs/cgroup/memory.max"):
        (tmp_path / place).mkdir(parents=True)
    assert both(tmp_path) == (4 * GIB, 4 * GIB)


def test_the_limits_of_this_process_are_found() -> None:
    code = (
        "import resource; limit = 3 << 30; resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "from engine.memory.resources import total_memory_bytes, free_memory_bytes\n"
        "from engine.limits import memory_bytes\n"
        "total = total_memory_bytes()  # first: what is mapped grows, and counts in both\n"
        "print(0 < free_memory_bytes() <= total < limit and 0 < memory_bytes() < limit)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)
    assert done.stdout.strip() == "True"


def test_nothing_else_reads_how_much_there_is() -> None:
    pattern = re.compile(
        r"sched_getaffinity|cpu_count|cpu\.max|cfs_quota|meminfo|memory\.max|limit_in_bytes|SC_PHYS_PAGES|RLIMIT_(AS|DATA)"
    )
    files = [path for room in ("engine", "app", "exporter") for path in (PROJECT / room).rglob("*.py")]
    assert [path.name for path in files if pattern.search(path.read_text())] == ["resources.py"]
