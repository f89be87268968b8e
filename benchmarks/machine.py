"""Description of the machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.version import version
from benchmarks.rivals import ENGINES
from engine.compiler.measuring.machines import microarchitecture

ROOT = Path(__file__).resolve().parents[1]


def describe(engines: Sequence[str]) -> dict[str, Any]:
    """Return processor, cores, versions, commit and date (UTC)."""
    distributions = {name: ENGINES[name].distribution for name in engines}
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "processor": _processor(),
        "microarchitecture": microarchitecture(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
        "engines": {name: f"{each} {version(each, '(not installed)')}" for name, each in distributions.items()},
    }


def heading(machine: Mapping[str, Any]) -> str:
    """Return the first line of a report."""
    return f"{machine['processor']}, Python {machine['python']}, commit {machine['commit']}, {machine['date']} UTC"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    vectors = [name for name in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni") if re.search(rf"\b{name}\b", text)]
    return f"{found[1] if found else platform.machine()} ({', '.join(vectors) or 'no vector extension known'})"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
