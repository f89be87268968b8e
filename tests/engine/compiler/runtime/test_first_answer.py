"""The first answer of a graph with much to compile: the reference's, with machine code made behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine.compiler.builder import Builder
from engine.compiler.compiled import MANY_OPERATORS
from engine.errors import CompileError
from tests.engine.graph.build import INPUT, built, op
from tests.patience import until

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
FUNCTIONS = ("torch.sin", "torch.tanh", "F.relu")


def long_graph(first: str = "torch.cos") -> engine.RuntimeGraph:
    """As many operators as are made behind the first answer; they are one kernel, so tests take no longer for it."""
    chain = [op(FUNCTIONS[k % 3], f"op{k}", str(k), str(k + 1)) for k in range(1, MANY_OPERATORS)]
    last = op("pnnx.Output", "out", str(MANY_OPERATORS))
    return built(INPUT, op(first, "op0", "0", "1"), *chain, last, _0=X.shape)


def session(cache: Path | None = None, **options: object) -> engine.Session:
    graph = options.pop("graph", None) or long_graph()
    return engine.Session(graph, threads=1, cache=cache, **options)  # type: ignore[arg-type]


def no_program(*_: object, **__: object) -> None:
    raise CompileError("there is none")


def test_the_reference_answers_first_and_what_is_compiled_behind_it_agrees() -> None:
    made = session()
    first = made.run([X])[0]
    reference = session(backend="reference").run([X])[0]
    np.testing.assert_array_equal(first, reference)
    np.testing.assert_allclose(made.run([X])[0], reference, rtol=1e-5, atol=1e-6)  # which waits for it
    assert made.is_compiled([X])
    assert made.describe()["compiler"]["kernels"] > 0


@pytest.mark.parametrize("how", ["must be compiled", "profiled", "prepared", "few operators"])
def test_who_wants_machine_code_waits_for_it(how: str) -> None:
    few = built(INPUT, op("F.relu", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=X.shape)
    made = session(
        backend="compiled" if how == "must be compiled" else "auto", graph=few if how == "few operators" else None
    )
    if how == "prepared":
        made.prepare()
    made.run([X], profile=how == "profiled")
    assert made.is_compiled([X])


def test_what_the_cache_has_is_there_for_the_first_answer(tmp_path: Path) -> None:
    session(tmp_path).prepare()
    made = session(tmp_path)
    made.run([X])
    assert made.is_compiled([X]) and made.describe()["compiler"]["is_cached"]


def test_what_cannot_be_compiled_is_told_once_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "program", no_program)
    made = session()

    def has_failed() -> bool:
        made.run([X])
        return made.compile_failure is not None

    until(has_failed)
    assert "there is none" in str(made.compile_failure) and made.backend == "reference"


@engine.register("test.WaitsForCode")
class WaitsForCode(engine.Layer):
    """Its operand, once there is machine code for the graph."""

    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:
        return input

    def forward(self, input: np.ndarray) -> np.ndarray:
        RUNS.append(1)
        until(lambda: SESSIONS[-1].is_compiled([X]))
        return input


RUNS: list[int] = []
SESSIONS: list[engine.Session] = []


def test_machine_code_that_is_there_before_the_reference_has_answered_answers() -> None:
    RUNS.clear()
    SESSIONS.append(session(graph=long_graph("test.WaitsForCode")))
    SESSIONS[-1].run([X])
    assert len(RUNS) == 2


def test_a_first_answer_can_be_cancelled() -> None:
    SESSIONS.append(session(graph=long_graph("test.WaitsForCode")))
    with pytest.raises(engine.RunCancelledError):
        SESSIONS[-1].run([X], cancelled=lambda: len(RUNS) > 0)
