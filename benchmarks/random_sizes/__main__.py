"""Measure requests of random sizes from the first one on, beside rivals on the same ONNX file.

    python -m benchmarks.random_sizes [--networks mobilenet_v2 ...] [--requests 3000] [--threads 1] [--cache filled]

Every engine is a fresh process, meets the same random sizes in the same order, and takes turns of 50 requests with the
others on the same cores. Answers are compared with PyTorch's at eight sizes after the last turn; an engine whose
answers are wrong has no times. With `--cache filled`, an earlier process of ours has left its compiled code on disk.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from app.measuring.contest import ALLOWED_SHARE, turns
from benchmarks.engine_processes import EngineProcess
from benchmarks.files import default_folder
from benchmarks.machine import describe
from benchmarks.random_sizes.networks import OPEN_NETWORKS, OpenNetwork, export_missing
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table

ENGINES: Final = (OURS, "onnxruntime", "openvino")
TURN_REQUESTS: Final = 50
SEED: Final = 0
LARGEST: Final = 200
"""Requests of the largest size, after the random ones."""
WINDOW: Final = 20
"""Requests whose median decides which engine is ahead."""


@dataclass(kw_only=True)
class Row:
    """One engine on one network: seconds of every request in order, and memory after every turn.

    Args:
        largest_s: of requests that all have the largest size, after the others.
    """

    network: str
    engine: str
    build_s: float | None = None
    error_share: float | None = None
    failure: str = ""
    times_s: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    largest_s: list[float] = field(default_factory=list)

    def quantile_ms(self, share: float, part: slice) -> float:
        """Return a quantile of a part of the requests in milliseconds; NaN without times."""
        return 1e3 * float(np.quantile(self.times_s[part], share)) if self.times_s[part] else float("nan")


def parts_of(requests: int) -> dict[str, slice]:
    """Return the parts of the requests that the table shows: the first, the next, and the last."""
    first, next_ = min(100, requests), min(400, requests)
    found = {f"first {first}": slice(0, first), f"first {next_}": slice(0, next_)}
    return found if requests <= next_ else {**found, "last 400": slice(-400, None)}


def measure(name: str, options: argparse.Namespace) -> list[Row]:
    """Measure one network with all engines in turns."""
    network, folder = OPEN_NETWORKS[name], options.folder / name
    random = np.random.default_rng(SEED)
    shapes = [network.draw_shape(random) for _ in range(options.requests)]
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    rows = [Row(network=name, engine=engine) for engine in options.engines]
    with ExitStack() as stack:
        cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="random-sizes-")))
        if options.cache == "filled" and OURS in options.engines:
            _fill_cache(network, folder, name, cores, cache)
        members = {}
        for row in rows:
            member = EngineProcess(_arguments(row.engine, name, folder, cores), len(cores), cache, _WORKER)
            stack.callback(member.close)
            _note(row, member.first_reply)
            members[row.engine] = member
        by_engine = {row.engine: row for row in rows}
        blocks = [shapes[start : start + TURN_REQUESTS] for start in range(0, len(shapes), TURN_REQUESTS)]
        order = turns(list(by_engine), len(blocks))
        for block in blocks:
            for engine in _next(order, len(by_engine)):
                _turn(by_engine[engine], members[engine], block)
        for row in rows:
            largest = [network.largest_shape()] * min(LARGEST, options.requests)
            row.largest_s = members[row.engine].ask({"shapes": largest}).get("times_s", [])
        for row in rows:
            _check(row, members[row.engine])
    return rows


_WORKER: Final = "benchmarks.random_sizes.worker"
_FILLING: Final = 600
_FILLING_S: Final = 20.0
"""Requests that fill the cache, and the time after which there are no more: all templates are there long before."""


def _next(order: Iterator[str], count: int) -> list[str]:
    return [next(order) for _ in range(count)]


def _arguments(engine: str, name: str, folder: Path, cores: Sequence[int]) -> list[str]:
    named = {"engine": engine, "network": name, "folder": folder.resolve(), "threads": len(cores)}
    return [*(f"--{key}={value}" for key, value in named.items()), "--cores", *map(str, cores)]


def _fill_cache(network: OpenNetwork, folder: Path, name: str, cores: Sequence[int], cache: Path) -> None:
    random = np.random.default_rng(SEED + 1)
    arguments = [*_arguments(OURS, name, folder, cores), "--backend=compiled"]  # waits for what it compiles
    member = EngineProcess(arguments, len(cores), cache, _WORKER)
    end = time.monotonic() + _FILLING_S
    for _ in range(0, _FILLING, TURN_REQUESTS):
        if time.monotonic() < end:
            member.ask({"shapes": [network.draw_shape(random) for _ in range(TURN_REQUESTS)]})
    member.close()


def _turn(row: Row, member: EngineProcess, shapes: Sequence[Sequence[int]]) -> None:
    if not row.failure:
        _note(row, member.ask({"shapes": shapes}))


def _check(row: Row, member: EngineProcess) -> None:
    if row.failure:
        return
    _note(row, member.ask({"check": True}))
    if row.error_share is not None and not row.error_share <= ALLOWED_SHARE:
        row.failure = f"wrong answer: differs by {row.error_share:.1e} of the largest magnitude"
        row.times_s = []


def _note(row: Row, reply: dict[str, Any]) -> None:
    row.failure = reply.get("failure", row.failure)
    row.build_s = reply.get("build_s", row.build_s)
    row.error_share = reply.get("error_share", row.error_share)
    row.times_s += reply.get("times_s", [])
    if "bytes" in reply:
        row.bytes.append(reply["bytes"])


def report(rows: Sequence[Row], requests: int) -> str:
    """Return the tables: milliseconds by part and quantile, and the best rival's time divided by ours."""
    parts, texts = parts_of(requests), []
    for title, part in parts.items():
        titles = [
            "network",
            *(f"{engine} {q}" for engine in _engines(rows) for q in ("p50", "p99")),
            "p50 ratio",
            "p99 ratio",
        ]
        texts += [f"### {title} requests (ms)", table(titles, [_cells(group, part) for group in _groups(rows)])]
    texts += ["### From the first request on", table(_BEGINNING, list(map(_beginning, _groups(rows))))]
    failures = [f"- {row.network}, {row.engine}: {row.failure}" for row in rows if row.failure]
    memory = [
        [row.network, row.engine, *(f"{row.bytes[turn] / 1e6:.0f}" for turn in (min(1, len(row.bytes) - 1), -1))]
        for row in rows
        if row.bytes
    ]
    texts += ["### Memory (MB)", table(["network", "engine", "after 100", "at the end"], memory)]
    return "\n\n".join([*texts, *(["### Not timed", "\n".join(failures)] if failures else [])])


_BEGINNING: Final = [
    "network", "requests until ahead", "slowest of ours (ms)", "slowest of the best rival (ms)",
    "p99 of ours ÷ p99 at the largest size",
]  # fmt: skip


def _beginning(group: Sequence[Row]) -> list[str]:
    """Return how soon ours is ahead, its slowest request, and its p99 beside that of one size."""
    ours = next((row for row in group if row.engine == OURS and row.times_s), None)
    rivals = [row for row in group if row.engine != OURS and row.times_s]
    if ours is None:
        return [group[0].network, *["–"] * (len(_BEGINNING) - 1)]
    fixed = f"{np.quantile(ours.times_s, 0.99) / np.quantile(ours.largest_s, 0.99):.2f}" if ours.largest_s else "–"
    slowest = f"{1e3 * min(max(row.times_s) for row in rivals):.1f}" if rivals else "–"
    return [ours.network, _until_ahead(ours, rivals), f"{1e3 * max(ours.times_s):.1f}", slowest, fixed]


def _until_ahead(ours: Row, rivals: Sequence[Row]) -> str:
    """Return the requests after which the median of ours over a window is below every rival's; – if it never is."""
    for start in range(len(ours.times_s) - WINDOW + 1 if rivals else 0):
        part = slice(start, start + WINDOW)
        if all(np.median(ours.times_s[part]) <= np.median(row.times_s[part]) for row in rivals):
            return str(start)
    return "–"


def _engines(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.engine for row in rows))


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    return [[row for row in rows if row.network == name] for name in dict.fromkeys(row.network for row in rows)]


def _cells(group: Sequence[Row], part: slice) -> list[str]:
    values = {(row.engine, share): row.quantile_ms(share, part) for row in group for share in (0.5, 0.99)}
    ratios = []
    for share in (0.5, 0.99):
        rivals = [value for (engine, each), value in values.items() if each == share and engine != OURS]
        ratios.append(f"{np.nanmin(rivals) / values[OURS, share]:.2f}" if rivals and (OURS, share) in values else "–")
    return [group[0].network, *(f"{value:.2f}" for value in values.values()), *ratios]


def main() -> int:
    """Export what is missing, measure, print, and save where asked. Return 1 when ours failed or answered wrongly."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=list(OPEN_NETWORKS), choices=list(OPEN_NETWORKS))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", choices=["empty", "filled"], default="empty")
    parser.add_argument("--folder", type=Path, default=default_folder() / "random_sizes")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    export_missing(options.networks, options.folder)
    rows: list[Row] = []
    for name in options.networks:
        rows += measure(name, options)
        print(f"{name}: measured", file=sys.stderr, flush=True)
    how = f"{options.threads} thread(s), {options.requests} requests, compile cache {options.cache}"
    result = Result(
        kind="random_sizes",
        machine=describe(options.engines),
        how=how,
        body=report(rows, options.requests),
        records=[_summary(row, options) for row in rows],
    )
    result.publish(options.save)
    return int(any(row.failure for row in rows if row.engine == OURS))


def _summary(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Return the data that redraws the table: quantiles in place of all times."""
    quantiles = {
        title: {str(share): row.quantile_ms(share, part) for share in (0.5, 0.9, 0.99)}
        for title, part in parts_of(options.requests).items()
    }
    return {
        **asdict(row),
        "times_s": [],
        "largest_s": [],
        "bytes": row.bytes[:: max(1, len(row.bytes) // 10)],
        "ms": quantiles,
    }


if __name__ == "__main__":
    sys.exit(main())
