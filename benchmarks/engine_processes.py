"""Engine processes that take turns: one runs, the others are stopped, so that none of their threads spins."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from app.thread_limits import BLAS_VARIABLES

ROOT: Final = Path(__file__).resolve().parents[1]
TIMEOUT_S: Final = 600.0

_SPIN: Final = "import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"


class EngineProcess:
    """Process of one engine, stopped between its turns.

    Args:
        arguments: of the worker.
        threads: for libraries that read it from the environment when they are loaded.
        cache: cache folder of the engines.
        worker: module that is run; it answers once when it has started, and once for each line it is sent.
    """

    def __init__(self, arguments: Sequence[str], threads: int, cache: Path, worker: str = "benchmarks.worker") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", worker, *arguments],
            cwd=ROOT,
            env=environment(os.environ, threads, cache),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.first_reply = self._reply()

    def measure(self, seconds: float, least: int) -> dict[str, Any]:
        """Run one turn; return the worker's reply, or {"failure"}."""
        return self.ask({"seconds": seconds, "least": least})

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Let the process run until it has answered a message; return its reply, or {"failure"}."""
        if self._process.poll() is not None or self._process.stdin is None:
            return {"failure": "the process has ended"}
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        return self._reply()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _reply(self) -> dict[str, Any]:
        stdout = self._process.stdout
        if stdout is None or not select.select([stdout], [], [], TIMEOUT_S)[0]:
            self._process.kill()  # or it would go on computing in the turns of others
            return {"failure": f"no answer in {TIMEOUT_S:.0f} s"}
        line = stdout.readline()
        if not line:
            return {"failure": f"the process ended with status {self._process.wait()}"}
        self._process.send_signal(signal.SIGSTOP)
        reply: dict[str, Any] = json.loads(line)
        return reply


class BusyCore:
    """Context manager with a process that keeps one core busy."""

    def __init__(self, core: int) -> None:
        self._core = core

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, "-c", _SPIN.format(core=self._core)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def environment(before: Mapping[str, str], threads: int, cache: Path) -> dict[str, str]:
    """Return the environment of a worker."""
    return {**installed(before), **dict.fromkeys(BLAS_VARIABLES, str(threads)), "XDG_CACHE_HOME": str(cache)}


def installed(before: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which programs have their bytecode, as installed ones do.

    Where none may be written beside the code of a checkout, every process would compile what it imports.
    """
    rest = {name: value for name, value in before.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "pnnx-serve-bytecode"), **rest}
