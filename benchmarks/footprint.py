"""Measure the memory of a model: ours with an empty and a filled compile cache, and other engines.

    python -m benchmarks.footprint [--folder NETS] [--networks resnet18 ...] [--engines ours ncnn ...] [--save NAME]

Every engine loads the network and answers twice, in a process of its own that imports nothing else. Ours starts with an
empty cache and compiles (cold), then from the cache (warm), and in two processes that share weights as workers of a
server do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.engine_processes import installed
from benchmarks.files import Files, default_folder
from benchmarks.memory import rollup
from benchmarks.record import OURS

ROOT: Final = Path(__file__).resolve().parents[1]
NETWORKS: Final = ("resnet18", "mobilenet_v2", "resnet50", "vgg11", "bert_mini_128", "minilm_l6_128", "gpt_small_128")
RIVALS: Final = ("onnxruntime", "openvino", "ncnn")
# Starts of ours: the name in the table, None for one that is not told of. The machine is measured up to three times.
_STARTS: Final = ("cold", None, None, "warm", "each of 2 workers")
_COLUMNS: Final = ("rss", "pss", "anonymous", "file", "shared", "peak")


def answer_twice(engine: str, files: Files, threads: int) -> None:
    """Load a network into this process and answer twice."""
    import numpy as np

    inputs = [np.load(files.input(1))]
    if engine == OURS:
        from engine import Session, load

        session = Session(load(files.param), threads=threads)
        session.prepare()  # without it the reference may answer until it is compiled
        run: Any = session.run
    else:
        from importlib import import_module

        from app.measuring.contest import RIVALS

        rival = RIVALS[engine]
        path = files.onnx(1) if rival.kind == "onnx" else files.ncnn_param
        run = rival.make(import_module(rival.module), path, threads)
    for _ in range(2):
        run(inputs)
    if engine == OURS and session.compile_failure:
        raise SystemExit(session.compile_failure)
    _kept.append(run)


# What was loaded stays until the process ends.
_kept: Final[list[Any]] = []


def take_part(engine: str, files: Files, threads: int, parent: int | None) -> None:
    """Answer twice and report it; report the memory when asked, and stay until the input ends.

    Args:
        parent: descriptor of the socket to one that shares weights among its children.
    """
    if parent is not None:
        from socket import socket

        from engine import share_memory

        share_memory(socket(fileno=parent))
    answer_twice(engine, files, threads)
    print("answered", flush=True)
    sys.stdin.readline()
    print(json.dumps(rollup()), flush=True)
    sys.stdin.read()


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each network, engine and start."""
    for network in options.networks:
        for engine in options.engines:
            with tempfile.TemporaryDirectory() as cache:
                for start in _STARTS if engine == OURS else ("",):
                    workers = 2 if start and "workers" in start else 0
                    found = _in_processes(engine, options.folder / network, options.threads, cache, workers)
                    if start is not None:
                        yield {"network": network, "engine": engine, "start": start, **found}


def _in_processes(engine: str, folder: Path, threads: int, cache: str, workers: int) -> dict[str, Any]:
    """Return the memory of a process, or the average of several that share weights."""
    from engine import SharedBlockServer

    shared_blocks = SharedBlockServer()
    ends = [shared_blocks.connect() for _ in range(workers)] or [None]
    command = [sys.executable, "-m", "benchmarks.footprint", "--one", engine, "--folder", str(folder)]
    settings = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    children = [
        subprocess.Popen(
            [*command, "--threads", str(threads), *([f"--parent={end.fileno()}"] if end else [])],
            cwd=ROOT,
            env={**installed(os.environ), **settings, "XDG_CACHE_HOME": cache},
            pass_fds=[end.fileno()] if end else [],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for end in ends
    ]
    for end in filter(None, ends):
        end.close()
    try:
        return _together(children)
    finally:
        for each in children:
            each.kill()
            each.communicate()


def _together(children: Sequence[subprocess.Popen[str]]) -> dict[str, Any]:
    """Return the average memory when all have answered and none has ended."""
    answered = [_line(each) for each in children]
    if not all(answered):
        told = [each.stderr.read().strip() for each in children if each.poll() and each.stderr]
        return {"failure": told[0].rpartition("\n")[2] if told else "the process has ended"}
    for each in children:
        if each.stdin is not None:
            each.stdin.write("\n")
            each.stdin.flush()
    found = [json.loads(_line(each)) for each in children]
    return {name: sum(each[name] for each in found) // len(found) for name in found[0]}


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def report(rows: Sequence[dict[str, Any]], machine: dict[str, Any]) -> str:
    """Return the table."""
    from benchmarks.report import table

    smallest: dict[str, int] = {}
    for row in rows:
        if row["engine"] != OURS and "rss" in row:
            smallest[row["network"]] = min(row["rss"], smallest.get(row["network"], row["rss"]))
    cells = []
    for row in rows:
        name = f"{machine['engines'].get(row['engine'], row['engine'])} {row['start']}".strip()
        figures = [f"{row[each] / 1e6:.0f}" if each in row else "–" for each in _COLUMNS]
        least = smallest.get(row["network"])
        share = f"{row['rss'] / least:.2f}" if row["engine"] == OURS and least and "rss" in row else ""
        cells.append([f"{row['network']}: {name}", *figures, share])
    title = ["network and engine", *(f"{each} MB" for each in _COLUMNS), "ours / smallest rival"]
    return table(title, cells)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and save it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.footprint", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--folder", type=Path, default=default_folder(), help="folder of exported networks")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help=f"({' '.join(NETWORKS)})")
    parser.add_argument("--engines", nargs="+", default=[OURS, *RIVALS], help=f"({OURS} {' '.join(RIVALS)})")
    parser.add_argument("--threads", type=int, default=1, help="threads of a run (1)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        take_part(options.one, Files(options.folder), options.threads, options.parent)
        return 0
    rows = list(measure(options))
    # `describe` imports every engine; the measured processes must not.
    from benchmarks.machine import describe
    from benchmarks.raw import Result

    machine = describe(options.engines)
    how = f"{options.threads} thread(s); 10⁶ bytes, the whole process"
    result = Result(kind="memory", machine=machine, how=how, body=report(rows, machine), records=rows)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
