"""Sessions without llvmlite installed: the reference runs everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]

BLOCKED = """
import sys
sys.modules["llvmlite"] = None
import numpy as np
import engine
from tests.engine.graph.build import INPUT, built, op

graph = built(INPUT, op("F.relu", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=(1, 4))
x = np.array([[-1, 2, -3, 4]], np.float32)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_auto_runs_on_the_reference_and_says_why() -> None:
    done = run(
        "session = engine.Session(graph)\n"
        "print(session.run([x])[0].tolist(), session.backend, session.describe()['compiler']['failure'])"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[[0.0, 2.0, 0.0, 4.0]] reference llvmlite cannot be imported")


def test_compiled_is_refused_with_the_reason() -> None:
    done = run("engine.Session(graph, backend='compiled').run([x])")
    assert "CompileError: llvmlite cannot be imported, so there is no compiler" in done.stderr


def test_the_program_checks_and_runs_models() -> None:
    done = run("from app.cli import main\nsys.exit(main(['check', 'digits']))")
    assert (done.returncode, done.stdout) == (0, "digits: ok\n"), done.stderr
