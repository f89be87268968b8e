"""Tests that memory of large requests is returned to the system, whichever threads used it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.memory.machine import Trimmer

# What threads allocate and free for requests: bodies, texts, lists, pictures, with a little left alive in between.
_PROGRAM = """
import threading, time
from app.memory.machine import Trimmer, configure_malloc, _libc

configure_malloc()
trimmer = Trimmer()
left = []

def rss():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) // 1024

def work(number):
    for size in SIZES:
        held = [bytearray(size) for _ in range(max(1, 48_000_000 // size))]
        for each in held:
            each[::4096] = bytes(len(each[::4096]))
        left.append(bytearray(700))
        del held
        left.append(bytearray(700))
        trimmer(48_000_000)

before = rss()
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
most = rss()
for _ in range(1000):
    time.sleep(0.1)
    if rss() < before + 96:
        break
print(before, most, rss())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("sizes", [(1_000_000, 300_000), (20_000_000, 5_000_000), (40_000_000, 60_000, 3_000_000)])
def test_what_threads_freed_is_given_back_within_seconds(sizes: tuple[int, ...]) -> None:
    program = _PROGRAM.replace("SIZES", repr(sizes))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    before, _, after = map(int, done.stdout.split())
    assert after < before + 96, done.stdout


def test_requests_that_took_much_together_are_followed_by_a_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []
    trimmer = Trimmer()
    monkeypatch.setattr("app.memory.machine._PAUSE_S", 0)
    monkeypatch.setattr(trimmer, "_libc", object())
    monkeypatch.setattr(trimmer, "_trim", lambda: trims.append(1))
    for _ in range(1000):
        trimmer(100_000)  # small ones may come for ever
    assert not trims
    for _ in range(8):
        trimmer(16 << 20)
    assert trims
