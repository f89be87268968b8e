"""Simulate 1, 10, 100 and 1,000 nodes with measured service times: waits, losses, starts, costs.

    python -m benchmarks.scale.measure                       # service times of this machine, into times.json
    python -m benchmarks.scale [--only sizes ...] [--requests 200000] [--save NAME]

Plain Python with one random generator: the same times give the same page. tests/benchmarks/test_scale.py compares the
simulation with the formulas of M/M/1, M/M/c, M/G/1 and of two choices.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, describe, heading
from benchmarks.raw import pack
from benchmarks.report import table
from benchmarks.scale.load import Measured
from benchmarks.scale.measure import TIMES
from benchmarks.scale.scenarios import SCENARIOS, Row, World


def world(path: Path, requests: int, hour_cost: float) -> tuple[World, dict[str, Any]]:
    """Return the world of measured times, and where they were measured."""
    found = json.loads(path.read_text(encoding="utf-8"))
    heavy, alike = (Measured([each / 1e3 for each in found["times_ms"][name]]) for name in ("heavy-tailed", "alike"))
    share = shared_share({int(size): each for size, each in found["batch_ms"].items()})
    made = World(heavy=heavy, alike=alike, shared_share=share, requests=requests, hour_cost=hour_cost)
    return made, found["machine"]


def shared_share(batch_ms: Mapping[int, float]) -> float:
    """Return the share of a run that is spent once: n requests take share + (1 - share) * n times as long as one."""
    most = max(batch_ms, default=1)
    if most == 1:
        return 0.0
    return max(0.0, (most - batch_ms[most] / batch_ms[1]) / (most - 1))


def section(title: str, text: str, rows: list[Row]) -> str:
    """Return a scenario as text."""
    return f"## {title}\n\n{text}\n\n{table(list(rows[0]), [[str(each) for each in row.values()] for row in rows])}\n"


def main() -> int:
    """Simulate, print, and save if asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--requests", type=int, default=200_000, help="requests of one simulation, about")
    parser.add_argument(
        "--hour-cost", type=float, default=0.08, help="price of a node of two cores, in dollars an hour"
    )
    parser.add_argument("--times", type=Path, default=TIMES, help="service times saved by measure.py")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json.gz and NAME.md")
    options = parser.parse_args()
    own, machine = world(options.times, options.requests, options.hour_cost)
    parts, records = [], []
    for name in options.only:
        start = time.monotonic()
        title, scenario = SCENARIOS[name]
        rows = list(scenario(own))
        records += [{"scenario": name, **row} for row in rows]
        parts.append(section(title, (scenario.__doc__ or "").strip(), rows))
        print(parts[-1], flush=True)
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    means = f"{own.heavy.mean_s() * 1e3:.2f} (heavy-tailed), {own.alike.mean_s() * 1e3:.2f} (alike)"
    head = (
        f"Service times measured on {heading(machine)}; means in ms: {means}; {own.shared_share:.0%} of a run is spent "
        f"once, however many share it. ${own.hour_cost:g} a node and hour. {own.requests} requests each."
    )
    if options.save:
        text = "\n".join([f"# Many nodes, simulated\n\n{head}\n", *parts])
        folder = ROOT / "benchmarks" / "results"
        (folder / f"{options.save}.md").write_text(text, encoding="utf-8")
        pack(folder / f"{options.save}.json.gz", {"machine": describe(()), "records": records})
    return 0


if __name__ == "__main__":
    sys.exit(main())
