"""Cases tried in a child process, under limits, so that a crash or a hang is a finding and not the end.

A front end is a function ``module:name`` that takes one case, plain data as JSON has it, and returns in a word what
came of it. Whatever it raises is a finding; so is a child that dies, takes more processor time or memory than a case
may, twice in a row, or does not answer. After a finding that ended it the next case gets a new child.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
# A child is ended when it took so many times what a case may take.
_KILLED = 3
# Who has had less than this share of a processor was not at work.
_AT_WORK = 0.01
# Outcomes that a machine where memory or processors are scarce may be the reason of, which it seldom is twice.
_TOO_LONG = ("too slow", "no answer", "died: SIGXCPU")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource limits of a case.

    Args:
        address_bytes: address space of the child (RLIMIT_AS); more cannot be had.
        case_bytes: memory a case may touch beyond what the child held before it.
        cpu_s: processor time after which a case is a finding; the child is ended after three times as much.
        wall_s: time to answer of one that does not use the processor.
    """

    address_bytes: int = 4 << 30
    case_bytes: int = 1 << 30
    cpu_s: float = 2.0
    wall_s: float = 90.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a case.

    Args:
        outcome: the front end's word, or what was found.
        is_finding: whether it must not have come to that.
        detail: traceback or the child's last words.
    """

    case: Any
    outcome: str
    is_finding: bool = False
    detail: str = ""
    cpu_s: float = 0.0
    peak_bytes: int = 0

    def __str__(self) -> str:
        took = f"{self.cpu_s:.2f} s, {self.peak_bytes >> 20} MiB"
        return f"{self.outcome} ({took}): {json.dumps(self.case)[:2000]}\n{self.detail}"


class Child:
    """A process that tries cases, one after the other; made anew when it ends."""

    def __init__(self, front_end: str, limits: Limits | None = None) -> None:
        self._front_end = front_end
        self._limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        self._words.close()

    def attempt(self, case: Any) -> Result:
        """Try one case; one that took too long once more, in a new child: the machine may have been busy elsewhere."""
        result = self._attempt(case)
        if not result.outcome.startswith(_TOO_LONG):
            return result
        self._end()
        return self._attempt(case)

    def _attempt(self, case: Any) -> Result:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(case).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline() if self._waits_for(process) else None
        except BrokenPipeError:
            line = b""
        if line is None:
            return Result(
                case=case, outcome="no answer", is_finding=True, detail=self._end(), cpu_s=self._limits.wall_s
            )
        if not line:
            status = process.wait()
            name = signal.Signals(-status).name if status < 0 else f"exit {status}"
            return Result(case=case, outcome=f"died: {name}", is_finding=True, detail=self._end())
        return self._judged(Result(case=case, **json.loads(line)))

    def _waits_for(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether it answers or ends; a working child may wait for a processor."""
        before = -1.0
        while not select.select([process.stdout], [], [], self._limits.wall_s)[0]:
            if (now := _cpu_s(process.pid)) - before < _AT_WORK * self._limits.wall_s:
                return False
            before = now
        return True

    def _judged(self, result: Result) -> Result:
        if result.is_finding:
            return result
        taken = {
            # What was asked to make much, and made it, may take its time.
            "too slow": result.cpu_s > (_KILLED if result.outcome.startswith("large:") else 1) * self._limits.cpu_s,
            "too much memory": result.peak_bytes > self._limits.case_bytes,
        }
        for outcome, is_too_much in taken.items():
            if is_too_much:
                return Result(**{**vars(result), "outcome": f"{outcome}: {result.outcome}", "is_finding": True})
        return result

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._words.seek(0)
            self._words.truncate()
            limits = f"{self._limits.address_bytes} {math.ceil(_KILLED * self._limits.cpu_s)}"
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.child", self._front_end, *limits.split()],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        return self._process

    def _end(self) -> str:
        """End the child; its last words."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None
        self._words.seek(0)
        return self._words.read()[-3000:].decode(errors="replace")


def run(front_end: str, cases: Iterable[Any], limits: Limits | None = None) -> Iterator[Result]:
    """Try cases, in order, in as few children as it takes."""
    with Child(front_end, limits) as child:
        for case in cases:
            yield child.attempt(case)


def _cpu_s(pid: int) -> float:
    """Processor time that a child of ours has had."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _serve(front_end: str, address_bytes: int, cpu_s: int) -> None:
    """The child's own loop: a line a case, a line a result."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a case prints is not an answer
    faulthandler.enable()
    module, _, name = front_end.partition(":")
    attempt: Callable[[Any], str] = getattr(importlib.import_module(module), name)
    resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))
    for line in sys.stdin:
        answers.write(json.dumps(_tried(attempt, json.loads(line), cpu_s)) + "\n")
        answers.flush()


def _tried(attempt: Callable[[Any], str], case: Any, cpu_s: int) -> dict[str, Any]:
    start, before = time.process_time(), _peak_bytes(reset=True)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(start) + cpu_s, hard))
    try:
        told: dict[str, Any] = {"outcome": attempt(case)}
    except BaseException as error:
        told = {"outcome": type(error).__name__, "is_finding": True, "detail": traceback.format_exc()[-3000:]}
    told |= {"cpu_s": time.process_time() - start, "peak_bytes": max(_peak_bytes() - before, 0)}
    return told


def _peak_bytes(*, reset: bool = False) -> int:
    """The most memory this process has held since the last reset."""
    if reset:
        with contextlib.suppress(OSError):  # then it is the most it has ever held
            Path("/proc/self/clear_refs").write_text("5")
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
