"""The same models behind ours and other servers: requests a second and waiting, all of them in turns.

    python -m benchmarks.servers --folder DIR [--servers NAME ...] [--models NAME ...] [--rounds 3] [--save NAME]

Every server is installed into an environment of its own below the folder, at its newest version, and started on the
first core with one thread for its model; clients ask from the others, each on a connection that it keeps. Servers whose
turn it is not are stopped (SIGSTOP), so that what they do while they wait is not counted. Each gets the tensor in the
shortest form that it takes. The first answer of each is held against PyTorch's before anything is timed.
Making the models needs torch, pnnx and onnx (the extra bench), once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.files import Files
from benchmarks.machine import ROOT, describe
from benchmarks.networks import NETWORKS, Network
from benchmarks.report import table, write
from benchmarks.servers.rivals import OURS, RIVALS, Rival
from benchmarks.servers.wire import Connection, is_ready

CLIENTS: Final = (1, 8)
MODELS: Final = {
    "resnet18": NETWORKS["resnet18"],
    "mlp": Network(name="mlp", module="mlp", make="mlp", shape=(1, 784)),
}
_PORT: Final = 18900
_START_S: Final = 120.0


@dataclass
class Side:
    """What was measured of one server, by number of clients."""

    rates: dict[int, list[float]] = field(default_factory=dict)
    waits_ms: dict[int, list[float]] = field(default_factory=dict)


@dataclass
class Peer:
    """A server that runs."""

    rival: Rival
    port: int
    process: subprocess.Popen[bytes]
    message: bytes
    side: Side = field(default_factory=Side)

    def signal(self, number: signal.Signals) -> None:
        """To the server and all the processes it has started, some of which are in groups of their own."""
        for pid in _family(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """A process and those that descend from it, the oldest first."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            texts = [path.read_text() for path in Path(f"/proc/{parent}/task").glob("*/children")]
            found += [int(child) for text in texts for child in text.split()]
    return found


def install(rival: Rival, folder: Path) -> Path:
    """The Python of a server's environment, made where it is not there."""
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


def make_files(network: Network, folder: Path) -> Files:
    """A network's files, made where they are not there."""
    files = Files(folder / "models" / network.name)
    if files.missing([1]):
        from benchmarks.export import export  # needs torch

        for remark in export(network, files, [1]):
            print(remark)
    return files


@contextlib.contextmanager
def serving(rival: Rival, python: Path, files: Files, port: int, x: np.ndarray, log: Path) -> Iterator[Peer | None]:
    """A server on the first core, once it answers rightly; None where it does not start."""
    if is_ready(port, rival.ready):
        raise SystemExit(f"something answers at port {port} already")
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
        start = rival.start(python, files, port, Path(folder) / "own", x.shape)
        process = subprocess.Popen(
            ["taskset", "-c", str(min(os.sched_getaffinity(0))), *start.command],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **start.environ},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        peer = Peer(rival, port, process, rival.ask(x).wire())
        try:
            problem = _fault(peer, np.load(files.output(1)).ravel())
            if problem is not None:
                print(f"{rival.name} is left out: {problem}; see {log}", flush=True)
            yield None if problem else peer
        finally:
            peer.signal(signal.SIGKILL)
            process.wait()


def _fault(peer: Peer, expected: np.ndarray) -> str | None:
    end = time.monotonic() + _START_S
    while not is_ready(peer.port, peer.rival.ready):
        if peer.process.poll() is not None or time.monotonic() > end:
            return "it did not start"
        time.sleep(0.2)
    status, headers, body = Connection(peer.port).ask(peer.message)
    if status != 200:
        return f"{status} {body[:300]!r}"
    found = peer.rival.read(headers, body)
    is_right = found.shape == expected.shape and np.allclose(found, expected, rtol=1e-3, atol=1e-3)
    return None if is_right else f"a wrong answer: {found[:4]}, expected {expected[:4]}"


def measure(peer: Peer, clients: int, seconds: float) -> None:
    """One turn: as many requests as so many clients get answered."""
    waits: list[float] = []
    begin = threading.Barrier(clients + 1)

    def client() -> None:
        connection, own = Connection(peer.port), list[float]()
        connection.ask(peer.message)
        begin.wait()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            status, _, _ = connection.ask(peer.message)
            if status == 200:
                own.append((time.perf_counter() - start) * 1e3)
        waits.extend(own)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    peer.side.rates.setdefault(clients, []).append(len(waits) / (time.perf_counter() - start))
    peer.side.waits_ms.setdefault(clients, []).extend(waits)


def compare(network: Network, names: Sequence[str], folder: Path, rounds: int, seconds: float) -> dict[str, Side]:
    """All servers of one model, in turns."""
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
    """Of the table."""
    for clients in CLIENTS:
        best = max((statistics.median(s.rates[clients]) for n, s in sides.items() if n != OURS), default=None)
        for name, side in sides.items():
            rate, waits = statistics.median(side.rates[clients]), sorted(side.waits_ms[clients])
            p50, p99 = (waits[int(len(waits) * share)] if waits else float("nan") for share in (0.5, 0.99))
            ratio = "" if best is None or name != OURS else f"{rate / best:.2f}"
            yield [network, str(clients), name, f"{rate:.1f}", ratio, f"{p50:.2f}", f"{p99:.2f}"]


def main() -> int:
    """Compare; print the table, and save it where asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="for environments and models")
    parser.add_argument("--servers", nargs="*", choices=list(RIVALS), default=list(RIVALS))
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of a turn, for each number of clients")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json and NAME.md")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        name: compare(MODELS[name], options.servers, folder, options.rounds, options.seconds) for name in options.models
    }
    titles = ["model", "clients", "server", "requests/s", "x best other", "p50 ms", "p99 ms"]
    machine = describe(())
    where = f"{machine['processor']}, Python {machine['python']}, commit {machine['commit']}, {machine['date']} UTC"
    versions = "; ".join(f"{name} {_version(folder, name)}" for name in options.servers if name != OURS)
    how = f"{options.rounds} turns of {options.seconds:g} s, the server on one core, the clients on others. {versions}"
    text = f"{where}; {how}\n\n{table(titles, [row for name, sides in found.items() for row in rows(name, sides)])}\n"
    print(text)
    if options.save:
        records = [
            {"model": model, "server": name, **asdict(side)}
            for model, sides in found.items()
            for name, side in sides.items()
        ]
        write(ROOT / "benchmarks" / "results" / options.save, text, machine, records)
    return 0


def _version(folder: Path, name: str) -> str:
    found = sorted((folder / name / "lib").glob(f"python*/site-packages/{name}-*.dist-info"))
    return found[-1].name.removesuffix(".dist-info").split("-")[1] if found else "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
