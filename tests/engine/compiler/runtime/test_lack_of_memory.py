"""A lack of memory while compiling: the reference answers, and compiling is tried again later."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import engine
from engine.compiler.builder import Builder
from engine.compiler.kernels.map import Map
from engine.compiler.runtime import compile_queue
from engine.compiler.runtime.compile_queue import Request
from engine.session import policies
from tests.engine.graph.build import INPUT, built, op

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


class Clock:
    """Time of a policy, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(policies, "time", made)
    return made


def session(backend: str = "auto") -> engine.Session:
    graph = built(INPUT, op("F.relu", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=X.shape)
    return engine.Session(graph, threads=1, cache=None, backend=backend)


def without_memory(*_: object, **__: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("place", [(Builder, "program"), (Map, "write")], ids=["program", "kernel"])
def test_a_graph_is_compiled_once_there_is_memory_again(
    place: tuple[type, str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session()
    with monkeypatch.context() as patch:
        patch.setattr(*place, without_memory)
        np.testing.assert_array_equal(made.run([X])[0], np.maximum(X, 0))
        assert "there is not enough memory to compile" in str(made.compile_failure)
    made.run([X])
    assert made.compile_failure is not None, "it is not tried with every request"
    clock.now += policies.MEMORY_RETRY_S
    made.run([X])
    assert made.compile_failure is None and made.is_compiled([X])
    assert made.compiler_defects == 0


def test_machine_code_alone_says_that_there_is_no_memory_and_may_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = session("compiled")
    with monkeypatch.context() as patch:
        patch.setattr(Builder, "program", without_memory)
        with pytest.raises(engine.CompileError, match="there is not enough memory to compile"):
            made.run([X])
    made.run([X])
    assert made.compiler_defects == 0


def test_a_request_in_the_background_rests_and_is_due_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        def make(self, request: Request, progress: object) -> None:
            raise MemoryError

        def has_room(self, size: int | None) -> bool:
            return True

    owner, queue = Owner(), compile_queue.CompileQueue()
    request = Request(weakref.ref(owner), (), ())
    queue._requests[id(owner), ()] = request
    queue._compile(request)
    request.count = compile_queue.WORTH
    assert len(queue) == 1 and not request.has_failed and not request.is_due
    request.retry_after = 0.0
    assert request.is_due
