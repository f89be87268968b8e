"""Compare whole networks with other engines, in turn on the same cores.

    python -m benchmarks.bench_graph [--networks resnet18 transformers] [--threads 1 2] [--batch 1 8]

Exports what is missing, compares every engine's answer with PyTorch's, then lets the engines take turns. Writes a
Markdown table and the same as JSON. benchmarks/README.md says what is measured and what is not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine, report
from benchmarks.files import Files, default_folder
from benchmarks.measure import Plan, measure
from benchmarks.networks import Network, select
from benchmarks.record import OURS, Record
from benchmarks.rivals import ENGINES

BUSY_THREADS = 2


def parser() -> argparse.ArgumentParser:
    """Return the command line parser."""
    found = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="bench_graph",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--networks", nargs="+", default=[], metavar="NAME", help="names or groups (vision)")
    found.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), help="(all)")
    found.add_argument("--backend", default="auto", help="backend of our session: auto, compiled or reference (auto)")
    found.add_argument("--threads", nargs="+", type=_positive, default=[1, 2], help="(1 2)")
    found.add_argument("--batch", nargs="+", type=_positive, default=[1, 8], help="(1 8)")
    found.add_argument("--rounds", type=_positive, default=7, help="turns of every engine (7)")
    found.add_argument("--seconds", type=float, default=0.3, help="length of a turn, or three runs (0.3)")
    found.add_argument(
        "--busy",
        nargs="*",
        metavar="ENGINE",
        choices=list(ENGINES),
        help=f"also with one core kept busy by another process, at {BUSY_THREADS} threads; without a name {OURS}",
    )
    found.add_argument(
        "--folder", type=Path, default=default_folder(), help=f"folder of the networks ({default_folder()})"
    )
    found.add_argument(
        "--output", type=Path, default=Path(__file__).with_name("raw") / "networks", help="without .md or .json"
    )
    what = found.add_mutually_exclusive_group()
    what.add_argument("--export-only", action="store_true", help="export what is missing, and nothing else")
    what.add_argument("--check-only", action="store_true", help="compare the answers with PyTorch's, time nothing")
    return found


def plan_from(options: argparse.Namespace) -> Plan:
    """Return the plan that the options describe."""
    busy = () if options.busy is None else tuple(options.busy) or (OURS,)
    return Plan(
        folder=options.folder,
        engines=tuple(options.engines),
        backend=options.backend,
        rounds=0 if options.check_only else options.rounds,
        seconds=options.seconds,
        busy=busy,
        busy_threads=BUSY_THREADS,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if our engine failed or answered wrongly."""
    options = parser().parse_args(arguments)
    try:
        networks = select(options.networks)
    except ValueError as error:
        parser().error(str(error))
    if options.busy is not None and BUSY_THREADS not in options.threads:
        parser().error(f"--busy is measured at {BUSY_THREADS} threads, and --threads leaves them out")
    _export_missing(networks, options.folder, options.batch)
    if options.export_only:
        return 0
    records = _measure_all(plan_from(options), networks, options)
    if not options.check_only:
        about = machine.describe(options.engines)
        report.save(options.output, about, records)
        print(report.markdown(about, records))
    return int(any(record.failure for record in records if record.engine == OURS))


def _measure_all(plan: Plan, networks: Sequence[Network], options: argparse.Namespace) -> list[Record]:
    records: list[Record] = []
    for network in networks:
        for threads in options.threads:
            for batch in options.batch:
                records += measure(plan, network.name, threads, batch)
                _print(records[-len(plan.engines) :])
    return records


def _print(records: Sequence[Record]) -> None:
    for record in records:
        share = "none" if record.error_share is None else f"{record.error_share:.1e}"
        times = "" if record.best_s is None else f", {record.best_s * 1e3:.2f} ms"
        what = f"{record.network}, threads {record.threads}, batch {record.batch}, {record.engine}"
        print(f"{what}: error {share}{times} {record.failure}".rstrip(), flush=True)


def _export_missing(networks: Sequence[Network], folder: Path, batches: Sequence[int]) -> None:
    if all(not Files(folder / network.name).missing(batches) for network in networks):
        return
    from benchmarks.export import export  # needs torch

    for network in networks:
        start = time.monotonic()
        remarks = export(network, Files(folder / network.name), batches)
        print(f"{network.name}: exported in {time.monotonic() - start:.0f} s", *remarks, sep="; ", flush=True)


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
