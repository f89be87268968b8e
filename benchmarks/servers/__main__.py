"""Compare servers with the same models in turn: requests a second and waits.

    python -m benchmarks.servers --folder DIR [--servers NAME ...] [--models NAME ...] [--rounds 3] [--save NAME]

Every server is installed into an environment of its own below the folder, at its newest version, and started on the
first core with one thread for its model; clients use the other cores, each on a kept connection. Servers are stopped
(SIGSTOP) while another has its turn. Each gets the tensor in the shortest form that it takes. The first answer of each
is compared with PyTorch's. Making the models needs torch, pnnx and onnx (the extra bench), once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.machine import describe
from benchmarks.networks import NETWORKS, Network
from benchmarks.raw import Result
from benchmarks.report import table
from benchmarks.servers.process import Side, make_files, measure, serving
from benchmarks.servers.rivals import OURS, RIVALS, Rival

CLIENTS: Final = (1, 8)
MODELS: Final = {
    "resnet18": NETWORKS["resnet18"],
    "mlp": Network(name="mlp", module="mlp", make="mlp", shape=(1, 784)),
}
_PORT: Final = 18900


def install(rival: Rival, folder: Path) -> Path:
    """Return the Python of a server's environment; make it if it is missing."""
    if not rival.packages:
        return Path(sys.executable)
    home = folder / rival.name
    python = home / "bin" / "python"
    if not (home / ".installed").exists():
        print(f"installing {rival.name}", flush=True)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *rival.packages], check=True)
        (home / ".installed").touch()
    return python


def compare(network: Network, names: Sequence[str], folder: Path, rounds: int, seconds: float) -> dict[str, Side]:
    """Measure all servers of one model in turn."""
    files = make_files(network, folder)
    x = np.load(files.input(1))
    cores = sorted(os.sched_getaffinity(0))
    pythons = {name: install(RIVALS[name], folder) for name in names}
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(serving(RIVALS[name], pythons[name], files, _PORT + 10 * at, x, folder / f"{name}.log"))
            for at, name in enumerate(names)
        ]
        peers = [peer for peer in started if peer is not None]
        os.sched_setaffinity(0, cores[1:] or cores)
        for peer in peers:
            peer.signal(signal.SIGSTOP)
        for turn in range(rounds):
            for peer in peers[turn % len(peers) :] + peers[: turn % len(peers)]:
                peer.signal(signal.SIGCONT)
                for clients in CLIENTS:
                    measure(peer, clients, seconds)
                peer.signal(signal.SIGSTOP)
        os.sched_setaffinity(0, cores)
    return {peer.rival.name: peer.side for peer in peers}


def rows(network: str, sides: dict[str, Side]) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    for clients in CLIENTS:
        best = max((statistics.median(s.rates[clients]) for n, s in sides.items() if n != OURS), default=None)
        for name, side in sides.items():
            rate, waits = statistics.median(side.rates[clients]), sorted(side.waits_ms[clients])
            p50, p99 = (waits[int(len(waits) * share)] if waits else float("nan") for share in (0.5, 0.99))
            ratio = "" if best is None or name != OURS else f"{rate / best:.2f}"
            yield [network, str(clients), name, f"{rate:.1f}", ratio, f"{p50:.2f}", f"{p99:.2f}"]


def main() -> int:
    """Compare, print the table, and save it if asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="folder for environments and models")
    parser.add_argument("--servers", nargs="*", choices=list(RIVALS), default=list(RIVALS))
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="length of a turn, for each number of clients")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        name: compare(MODELS[name], options.servers, folder, options.rounds, options.seconds) for name in options.models
    }
    titles = ["model", "clients", "server", "requests/s", "ours / best other", "p50 ms", "p99 ms"]
    versions = "; ".join(f"{name} {_version(folder, name)}" for name in options.servers if name != OURS)
    how = f"{options.rounds} turns of {options.seconds:g} s, the server on one core, the clients on others. {versions}"
    lines = [row for name, sides in found.items() for row in rows(name, sides)]
    records = [
        {"model": model, "server": name, **asdict(side)}
        for model, sides in found.items()
        for name, side in sides.items()
    ]
    result = Result(kind="servers", machine=describe(()), how=how, body=table(titles, lines), records=records)
    result.publish(options.save)
    return 0


def _version(folder: Path, name: str) -> str:
    found = sorted((folder / name / "lib").glob(f"python*/site-packages/{name}-*.dist-info"))
    return found[-1].name.removesuffix(".dist-info").split("-")[1] if found else "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
