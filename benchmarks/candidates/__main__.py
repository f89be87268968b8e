"""Compare the choices of the cost models for a described machine with the best of a search that simulates cores.

    python -m benchmarks.candidates [--machines "Emerald Rapids" ...] [--networks resnet50 ...] [--save NAME]
    python -m benchmarks.candidates --check "Zen 4"     compare the simulator with this machine

Candidates of every convolution, linear layer and product of a network are all tiles, and the Winograd blockings whose
modelled cost is within a fifth of the best. llvm-mca simulates their inner functions; the cost of memory is the
model's. The networks are those that benchmarks/export.py has written.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.candidates.check import check
from benchmarks.candidates.machine import Machine
from benchmarks.candidates.search import Verdict, judged, lowered
from benchmarks.candidates.simulator import CORES
from benchmarks.machine import describe
from benchmarks.raw import Result
from engine.compiler.lowering.steps import KernelStep

NETWORKS = ("resnet50", "mobilenet_v2", "yolov5s", "bert_mini_128", "vit_tiny_224")
FOLDER = Path.home() / ".cache" / "pnnx-serve" / "benchmarks"
# What is told of a network's layers: the choices that lose most, where they lose more than so much.
_TOLD, _LOST = 4, 0.01


def main(argv: Sequence[str] | None = None) -> int:
    """Search, print the table, and save it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.candidates", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--machines", nargs="+", choices=CORES, default=["Emerald Rapids"], help="described machines")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="their folders")
    parser.add_argument("--folders", nargs="+", type=Path, default=[FOLDER], help="folders of exported networks")
    parser.add_argument(
        "--check", choices=CORES, help="compare the simulator with this machine, which must be of this kind"
    )
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args(argv)
    if options.check:
        print(check(Machine(options.check)))
        return 0
    found = [
        (name, network, _of_network(Machine(name), _place(options.folders, network)))
        for name in options.machines
        for network in options.networks
    ]
    body = "\n".join([*_summary(found), "", *_layers(found)])
    records = [
        {"machine": name, "network": network, "count": count, **asdict(verdict)}
        for name, network, verdicts in found
        for verdict, count in verdicts.items()
    ]
    result = Result(kind="candidates", machine=describe(()), how="simulated", body=body, records=records)
    result.publish(options.save)
    return 0


def _place(folders: Sequence[Path], network: str) -> Path:
    for folder in folders:
        if (folder / network).is_dir():
            return folder / network
    raise SystemExit(f"{network}: there is no such folder; see benchmarks/export.py")


def _of_network(machine: Machine, folder: Path) -> Counter[Verdict]:
    """Return the verdicts on a network's kernels with their counts."""
    steps = [step for step in lowered(folder, machine.host).steps if isinstance(step, KernelStep)]
    return Counter(verdict for step in steps for verdict in judged(machine, step))


Found = Sequence[tuple[str, str, Counter[Verdict]]]


def _summary(found: Found) -> list[str]:
    lines = [
        "Simulated: LLVM's llvm-mca on the assembly of inner functions, memory as the models of cost have it.",
        "",
        "| machine | network | kernels | chosen, million cycles | best found | chosen ÷ best | worst layer |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, network, verdicts in found:
        chosen, best = (sum(count * cycles(each) for each, count in verdicts.items()) for cycles in (_taken, _least))
        worst = max(each.cycles / each.least for each in verdicts)
        figures: list[Any] = [verdicts.total(), f"{chosen / 1e6:.2f}", f"{best / 1e6:.2f}", f"{chosen / best:.3f}"]
        lines.append(f"| {' | '.join(map(str, (name, network, *figures, f'{worst:.3f}')))} |")
    return lines


def _taken(verdict: Verdict) -> float:
    return verdict.cycles


def _least(verdict: Verdict) -> float:
    return verdict.least


def _layers(found: Found) -> list[str]:
    lines = [
        "Layers that lose most, where another candidate is simulated to be faster:",
        "",
        "| machine | network | layers | geometry | chosen | best found | chosen ÷ best |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, network, verdicts in found:
        order = sorted(verdicts.items(), key=lambda pair: (pair[0].least - pair[0].cycles) * pair[1])
        for each, count in order[:_TOLD]:
            if each.cycles > (1 + _LOST) * each.least:
                row = (name, network, count, each.geometry, each.chosen, each.best, f"{each.cycles / each.least:.3f}")
                lines.append(f"| {' | '.join(map(str, row))} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
