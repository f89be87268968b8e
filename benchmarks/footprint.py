"""What a model costs in memory: ours with an empty compile cache and with a full one, and other engines.

    python -m benchmarks.footprint [--folder NETS] [--networks resnet18 ...] [--engines ours ncnn ...] [--save NAME]

Every engine loads the network and answers twice, in a process of its own that imports nothing else; then the system
says what the process has. Ours runs three times: it compiles with an empty cache (cold), once more so that the
machine's measurements settle, and from what is in the cache (warm).
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

from benchmarks.files import Files, default_folder
from benchmarks.memory import rollup
from benchmarks.record import OURS

ROOT: Final = Path(__file__).resolve().parents[1]
NETWORKS: Final = ("resnet18", "mobilenet_v2", "resnet50", "vgg11")
RIVALS: Final = ("onnxruntime", "openvino", "ncnn")
# Starts of ours: the name in the table, None for one that is not told of. The machine is measured up to three times.
_STARTS: Final = ("cold", None, None, "warm")
_TIMEOUT_S: Final = 600.0
_COLUMNS: Final = ("rss", "pss", "anonymous", "file", "shared", "peak")


def answer_twice(engine: str, files: Files, threads: int) -> dict[str, int]:
    """Load a network into this process, answer twice; what the process has then, in bytes."""
    import numpy as np

    inputs = [np.load(files.input(1))]
    if engine == OURS:
        from engine import Session, load

        run: Any = Session(load(files.param), threads=threads).run
    else:
        from importlib import import_module

        from app.measuring.rivals import RIVALS

        rival = RIVALS[engine]
        path = files.onnx(1) if rival.kind == "onnx" else files.ncnn_param
        run = rival.make(import_module(rival.module), path, threads)
    for _ in range(2):
        run(inputs)
    return rollup()


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each network, engine and start."""
    for network in options.networks:
        for engine in options.engines:
            with tempfile.TemporaryDirectory() as cache:
                for start in _STARTS if engine == OURS else ("",):
                    found = _in_process(engine, options.folder / network, options.threads, cache)
                    if start is not None:
                        yield {"network": network, "engine": engine, "start": start, **found}


def _in_process(engine: str, folder: Path, threads: int, cache: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.footprint", "--one", engine, "--folder", str(folder)]
    settings = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    done = subprocess.run(
        [*command, "--threads", str(threads)],
        cwd=ROOT,
        env={**os.environ, **settings, "XDG_CACHE_HOME": cache},
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        return {"failure": done.stderr.decode(errors="replace").strip().rpartition("\n")[2]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(rows: Sequence[dict[str, Any]], machine: dict[str, Any], threads: int) -> str:
    """The table."""
    from app.render.spelling import counted
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
    title = ["network and engine", *(f"{each} MB" for each in _COLUMNS), "of the smallest rival"]
    return (
        f"# Memory after the second answer\n\n`python -m benchmarks.footprint`, {machine['processor']}, "
        f"Python {machine['python']}, commit {machine['commit']}, {machine['date']} UTC; {counted(threads, 'thread')}; "
        f"10⁶ bytes, the whole process. Columns are in benchmarks/README.md.\n\n{table(title, cells)}\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; print the table, and save it where asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.footprint", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--folder", type=Path, default=default_folder(), help="of exported networks")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help=f"({' '.join(NETWORKS)})")
    parser.add_argument("--engines", nargs="+", default=[OURS, *RIVALS], help=f"({OURS} {' '.join(RIVALS)})")
    parser.add_argument("--threads", type=int, default=1, help="of a run (1)")
    parser.add_argument("--save", help="name under benchmarks/results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        print(json.dumps(answer_twice(options.one, Files(options.folder), options.threads)))
        return 0
    rows = list(measure(options))
    # What describes the machine imports every engine's room; the processes that are measured do not.
    from benchmarks.machine import describe
    from benchmarks.report import write

    machine = describe(options.engines)
    text = report(rows, machine, options.threads)
    print(text)
    if options.save:
        write(ROOT / "benchmarks" / "results" / options.save, text, machine, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
