"""python -m benchmarks.ray overhead|loss|rolling|second, with the extra [ray].

overhead: a 600 kB tensor to the digits model, behind a server alone, behind Ray's proxy and behind HAProxy.
loss: two nodes with a replica each, one of them killed (SIGKILL, with all of its processes) under load.
rolling: five updates of a model's replicas under load, and five of its files.
second: another replica of a model on the same machine: how soon it is ready, and what memory it adds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.ray import loss, overhead, rolling, second

COMMANDS = {"overhead": overhead.run, "loss": loss.run, "rolling": rolling.run, "second": second.run}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--kind", choices=("plain", "haproxy"), help=argparse.SUPPRESS)
    parser.add_argument("--save", metavar="NAME", help="for overhead: write benchmarks/raw/NAME.json")
    args = parser.parse_args()
    if args.command == "overhead" and args.kind is None:
        return overhead.compare(lambda kind: _of_its_own(args.command, kind), args.save)
    print(json.dumps(COMMANDS[args.command](args.kind or "plain")), flush=True)
    return 0


def _of_its_own(command: str, kind: str) -> dict[str, float]:
    """Return the result of a process of its own: Ray chooses its proxy when it is imported."""
    asked = [sys.executable, "-m", "benchmarks.ray", command, "--kind", kind]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
