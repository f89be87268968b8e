"""Whole networks, ours against others, in turn on the same cores: python -m benchmarks.bench_graph --help"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.files import Files, default_folder
from benchmarks.networks import Network, select


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="bench_graph", description=__doc__)
    found.add_argument("--networks", nargs="+", default=[], metavar="NAME", help="names or groups (default: vision)")
    found.add_argument("--folder", type=Path, default=default_folder(), help="where the exported networks are")
    found.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    found.add_argument("--export-only", action="store_true", help="export what is missing, and nothing else")
    return found


def export_missing(networks: Sequence[Network], folder: Path, batches: Sequence[int]) -> None:
    """Make the files of the networks that are not there yet."""
    from benchmarks.export import export  # needs torch

    for network in networks:
        start = time.monotonic()
        remarks = export(network, Files(folder / network.name), batches)
        print(f"{network.name}: exported in {time.monotonic() - start:.0f} s", *remarks, sep="; ", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = parser().parse_args(arguments)
    try:
        networks = select(options.networks)
    except ValueError as error:
        parser().error(str(error))
    export_missing(networks, options.folder, options.batch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
