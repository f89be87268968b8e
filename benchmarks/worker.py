"""Process of one engine: it builds, answers, and runs when told to. One JSON object a line, both ways.

    first           -> {"build_s", "second_s", "rss_bytes", "pss_bytes", "error_share"} or {"failure"}
    {"seconds", "least"} -> {"times_s", "error_share"} or {"failure"}

It ends when its input does. benchmarks/engine_processes.py starts it, pinned to its cores before a library counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from app.measuring.contest import message_of, turn
from benchmarks.memory import proportional_bytes, resident_bytes


def main() -> None:
    """Serve one engine until the input ends."""
    options = _parser().parse_args()
    answer(options.cores, _replies(options))


def answer(cores: Sequence[int], replies: Iterator[dict[str, Any]]) -> None:
    """Write replies to standard output, a line each, on these cores alone; the first exception is the last reply."""
    os.sched_setaffinity(0, cores)
    output = _take_stdout()
    for reply in _with_failure(replies):
        output.write(json.dumps(reply) + "\n")
        output.flush()


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--engine", "--network", "--backend"):
        found.add_argument(name, required=True)
    found.add_argument("--folder", type=Path, required=True, help="folder of this network")
    for name in ("--batch", "--threads"):
        found.add_argument(name, type=int, required=True)
    found.add_argument("--cores", type=int, nargs="+", required=True)
    return found


def _take_stdout() -> TextIO:
    """Return standard output for this module alone: output of libraries goes to standard error."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return ours


def _with_failure(replies: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    try:
        yield from replies
    except Exception as error:
        yield {"failure": message_of(error)}


def _replies(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    worker = _Worker(options)
    yield worker.first_reply
    for line in sys.stdin:
        yield worker.measure(**json.loads(line))


class _Worker:
    def __init__(self, options: argparse.Namespace) -> None:
        import numpy as np

        from app.measuring.contest import error_share
        from benchmarks.files import Files
        from benchmarks.networks import NETWORKS
        from benchmarks.rivals import ENGINES, Job

        files, network = Files(options.folder), NETWORKS[options.network]
        engine = ENGINES[options.engine]
        engine.load_library()
        inputs = [np.load(files.input(options.batch))]
        job = Job(
            network=network.name, files=files, batch=options.batch, threads=options.threads, backend=options.backend
        )
        start = time.perf_counter()
        self._run = partial(engine.make(job), inputs)
        answer = self._run()
        build_s = time.perf_counter() - start
        answer = self._run()  # ours may have answered before there was any code, and waits for it now
        second_s = time.perf_counter() - start
        # Before anything is read that only the comparison needs.
        memory = {"rss_bytes": resident_bytes(), "pss_bytes": proportional_bytes()}
        expected = [np.load(files.output(options.batch))]
        self._error = lambda answer: error_share(answer, expected, has_columns=network.has_columns)
        self.first_reply = {"build_s": build_s, "second_s": second_s, **memory, "error_share": self._error(answer)}

    def measure(self, seconds: float, least: int) -> dict[str, Any]:
        """Run for this long and at least this often, after one run that is not counted (cold caches)."""
        times, answer = turn(self._run, seconds, least)
        return {"times_s": times, "error_share": self._error(answer)}


if __name__ == "__main__":
    main()
