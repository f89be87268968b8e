"""A question changes nothing: what is asked of a session makes no machine code, no memory, no thread and no file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler.builder import Builder
from engine.compiler.codegen import object_code
from engine.compiler.runtime import instance, instances
from engine.compiler.runtime.program_cache import ProgramCache
from engine.tensor import Array
from tests.engine.graph.build import F32, INPUT, built, conv, op

MADE = ((Builder, "program"), (object_code, "Code"), (instance, "new_arena"), (instance, "Workers"))


def network(*shape: int | None) -> RuntimeGraph:
    layer = conv("conv", "0", "1", (3, 8), padding=(1, 1))
    return built(INPUT, layer, op("nn.ReLU", "relu", "1", "2"), op("pnnx.Output", "out", "2"), _0=shape)


def ones(batch: int) -> Array:
    return np.ones((batch, 3, 24, 24), F32)


def ask(session: Session) -> dict[str, Any]:
    """Every question there is; what the last one tells."""
    assert session.backend == "compiled"
    assert session.threads == session.options.threads == 2
    assert session.compile_failure is None
    for batch in (1, 4, 6):
        assert session.estimate_bytes([ones(batch)]) > 0
    assert session.batching.mode == "any"
    return session.describe()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was made since."""
    names: list[str] = []

    def noted(name: str, make: Callable[..., object]) -> Callable[..., object]:
        return lambda *given, **more: (names.append(name), make(*given, **more))[1]

    for place, name in MADE:
        monkeypatch.setattr(place, name, noted(name, getattr(place, name)))
    return names


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> ProgramCache:
    """A program cache with nothing in it."""
    own = ProgramCache()
    monkeypatch.setattr(instances, "CACHE", own)
    return own


@pytest.mark.parametrize("shape", [(1, 3, 24, 24), (2, 3, 24, 24), (None, 3, 24, 24), (1, 3, None, None)], ids=str)
def test_questions_make_nothing(
    shape: tuple[int | None, ...], made: list[str], kept: ProgramCache, tmp_path: Path
) -> None:
    session = Session(network(*shape), threads=2, cache=tmp_path / "cache")
    threads = set(threading.enumerate())
    told = ask(session)
    assert made == []
    assert set(threading.enumerate()) <= threads
    assert kept.total == (0, 0) and not (tmp_path / "cache").exists()
    assert "compiler" not in told
    assert [row["kernel"] for row in told["operators"] if "kernel" in row] == [None, None]


def test_what_a_run_made_is_told_and_nothing_is_made_beside_it(made: list[str], kept: ProgramCache) -> None:
    session = Session(network(1, 3, 24, 24), threads=2, cache=None)
    session.run([ones(1)])
    assert made == [name for _, name in MADE]
    before = kept.total
    told = ask(session)
    assert len(made) == len(MADE) and kept.total == before != (0, 0)
    assert told["compiler"]["kernels"] > 0
    assert [row["kernel"] for row in told["operators"] if "kernel" in row] == ["conv", "fused"]
