"""Every front end for as long as one likes, each in a process of its own, all at once or one after the other.

    python -m tests.fuzz --seconds 3600 --seed 1 [--together] [files onnx_files onnx_graphs parameters data bodies
        protocol sockets answers]

A finding is printed with what it takes to try it again; the exit status is 1 when there was one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Final

FRONT_ENDS: Final = (
    "files",
    "onnx_files",
    "onnx_graphs",
    "parameters",
    "data",
    "bodies",
    "protocol",
    "sockets",
    "answers",
)


def main() -> int:
    """Run the front ends that are named."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m tests.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("front_ends", nargs="*", metavar="front end", help=f"of {', '.join(FRONT_ENDS)} (all)")
    parser.add_argument("--seconds", type=float, default=60, help="for each (60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of everything (the time)")
    parser.add_argument("--together", action="store_true", help="all at once")
    options = parser.parse_args()
    unknown = sorted(set(options.front_ends) - set(FRONT_ENDS))
    if unknown:
        parser.error(f"no such front end: {', '.join(unknown)}; there are {', '.join(FRONT_ENDS)}")
    print(f"seed {options.seed}", flush=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    for name in options.front_ends or FRONT_ENDS:
        print(f"{name} for {options.seconds:g} s", flush=True)
        arguments = ["--seconds", str(options.seconds), "--seed", str(options.seed)]
        running[name] = subprocess.Popen([sys.executable, "-m", f"tests.fuzz.{name}", *arguments])
        if not options.together:
            running[name].wait()
    failed = [name for name, process in running.items() if process.wait()]
    print(f"findings in: {', '.join(failed)}" if failed else "no findings", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
