"""Sweeps in processes of their own, begun again behind what ended one.

python -m tests.engine.compiler.dynamic.sweeps CHECK GROUP [FIRST [STEP [OPENINGS]]]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]


def sweeps(check: str, group: str, first: int = 0, step: int = 1, most: int = 2) -> Iterator[dict[str, Any]]:
    """Yield the outcome of every opening of every graph of a group, as the module of a check writes it.

    Args:
        check: ``sweeping`` or ``racing``.
    """
    is_ended = False
    while not is_ended:
        command = [
            sys.executable,
            "-m",
            f"tests.engine.compiler.dynamic.{check}",
            group,
            *map(str, (first, step, most)),
        ]
        begun, name = 0, ""
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = json.loads(line)
                if "begins" not in found:
                    yield found
                    continue
                begun, name = begun + found["is_graph"], found["begins"]
        is_ended = process.returncode == 0
        if not is_ended:
            assert begun, "the process cannot begin"
            yield {"name": name, "problem": f"the process ended with {process.returncode}"}
            first += begun * step


if __name__ == "__main__":
    for outcome in sweeps(*sys.argv[1:3], *map(int, sys.argv[3:])):
        print(json.dumps(outcome), flush=True)
