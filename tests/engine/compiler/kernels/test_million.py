"""Every kernel with every size and parameter at a million, in a process with bounded memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.compiler.kernels.large import FAMILIES

ROOT = Path(__file__).parents[4]
MEMORY_BYTES = 8 << 30


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_size_may_be_a_million(family: str) -> None:
    command = [sys.executable, "-m", "tests.engine.compiler.kernels.large", family]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, preexec_fn=_limited)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr[-2000:]
