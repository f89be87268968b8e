"""New shapes are compiled once they come again, in the background; known ones never wait, and bytes are bounded."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import CompileError, Session
from engine.compiler import CompiledGraph
from engine.compiler.runtime import compile_queue, instance, instances, program_cache, worker_pool
from engine.compiler.runtime.compile_queue import CompileQueue
from engine.compiler.runtime.instances import Instances
from engine.compiler.runtime.program_cache import ProgramCache
from engine.graph import RuntimeGraph
from engine.options import Options
from engine.pnnx import Graph, Operator
from engine.tensor import Array, TensorSpec
from tests.held import assert_no_more, held
from tests.patience import PATIENCE_S, until

F32 = np.dtype(np.float32)


def network(*shape: int | None) -> RuntimeGraph:
    operators = (
        Operator("pnnx.Input", "in", (), ("0",)),
        Operator("nn.ReLU", "relu", ("0",), ("1",)),
        Operator("pnnx.Output", "out", ("1",), ()),
    )
    graph = RuntimeGraph.from_source(Graph(operators=operators, annotations={"0": TensorSpec(shape, F32)}))
    graph.build()
    return graph


def specs(size: int) -> list[TensorSpec]:
    return [TensorSpec((1, size), F32)]


def ramp(size: int) -> Array:
    return np.linspace(-1, 1, size, dtype=F32)[None]


@pytest.fixture
def compiled() -> CompiledGraph:
    return CompiledGraph(network(1, None), Options(threads=1))


def test_the_reference_answers_until_code_is_made() -> None:
    session = Session(network(1, None), cache=None)
    np.testing.assert_array_equal(session.run([ramp(5)])[0], np.maximum(ramp(5), 0))

    def is_compiled() -> bool:
        session.run([ramp(5)])
        return session._executor.holds(session.graph, specs(5))

    until(is_compiled)
    np.testing.assert_array_equal(session.run([ramp(5)])[0], np.maximum(ramp(5), 0))


def test_known_shapes_run_while_others_are_made(compiled: CompiledGraph) -> None:
    may_go_on = threading.Event()

    def make(wanted: Sequence[TensorSpec], **_: Any) -> Any:
        if wanted == specs(7):
            assert may_go_on.wait(PATIENCE_S)
        return compiled.builder.program(wanted)

    made = Instances(make, 1)
    known = made.get(specs(5))
    for _ in range(2):
        made.begin(specs(7))
    assert made.get(specs(5)) is known
    assert made.program(specs(7)) is None
    may_go_on.set()
    until(lambda: made.program(specs(7)) is not None)


def test_many_who_ask_at_once_get_one_instance(compiled: CompiledGraph) -> None:
    made: list[Sequence[TensorSpec]] = []

    def make(wanted: Sequence[TensorSpec], **_: Any) -> Any:
        made.append(wanted)
        time.sleep(0.05)
        return compiled.builder.program(wanted)

    shared = Instances(make, 1)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(shared.get(specs(5)))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(found) == 6
    assert len(set(map(id, found))) == len(made) == 1


def test_what_cannot_be_made_is_tried_once_and_said(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def make(wanted: Sequence[TensorSpec], **_: Any) -> Any:
        tries.append(1)
        raise CompileError("no kernel", where="mystery")

    failing = Instances(make, 1)
    for _ in range(2):
        failing.begin(specs(5))
    until(lambda: "mystery: no kernel" in caplog.text)
    for _ in range(20):
        failing.begin(specs(5))
    until(lambda: not compile_queue.QUEUE.is_busy)
    assert len(tries) == 1
    with pytest.raises(CompileError):
        failing.get(specs(5))


class Clock:
    """The time of the program cache, which passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(program_cache, "time", own)
    monkeypatch.setattr(instance, "time", own)
    return own


def run(found: instance.AnyInstance | None, size: int) -> None:
    """Run an instance for a size."""
    assert found is not None
    found.run([ramp(size)])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> CompileQueue:
    """Return the queue of a process that has compiled nothing."""
    own = CompileQueue()
    monkeypatch.setattr(instances, "CACHE", ProgramCache())
    monkeypatch.setattr(instances, "QUEUE", own)
    return own


def test_of_too_many_sizes_of_a_template_the_one_that_was_made_first_goes(
    alone: CompileQueue, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "MAX_BOUND", 3)
    compiled.builder.program(specs(9))
    found = Instances(compiled.builder.program, 1, 1 << 30, is_dynamic=True)

    def meet(*sizes: int) -> list[int]:
        for size in sizes:
            assert found.find(specs(size)) or found.get_soon(specs(size), compiled.builder.bound_program)
        return [size for size in range(2, 20) if found.program(specs(size)) is not None]

    assert meet(2, 3, 4, 5, 6) == [4, 5, 6]
    before = found.bytes
    assert meet(4, 7) == [5, 6, 7] and meet(2) == [2, 6, 7]
    assert found.bytes == before  # code and weights are those of all sizes
    found.close()
    assert found.bytes == 0 == instances.CACHE.total[0]


def test_a_template_is_evicted_with_all_its_sizes_once_none_has_run_for_a_minute(
    alone: CompileQueue, compiled: CompiledGraph, clock: Clock
) -> None:
    program = compiled.builder.program(specs(9))
    limit, released = 3 * program_cache.weight(program) // 2, list[int]()

    def instances_of(number: int) -> Instances:
        return Instances(compiled.builder.program, 1, limit, is_dynamic=True, release=lambda _: released.append(number))

    def meet(found: Instances, size: int) -> bool:
        run(found.find(specs(size)) or found.get_soon(specs(size), compiled.builder.bound_program), size)
        return found.program(specs(size)) is not None

    first, second = instances_of(1), instances_of(2)
    assert meet(first, 3) and meet(first, 5)
    assert not meet(second, 3) and released == [2]  # there is no room, and the first has just run
    clock.now += 59
    assert meet(first, 5)
    clock.now += 59
    assert not meet(second, 3) and released == [2, 2]  # one of its sizes has run since
    clock.now += 2
    assert meet(second, 3) and released == [2, 2, 1]
    assert first.program(specs(3)) is None and first.program(specs(5)) is None and first.bytes == 0
    assert second.bytes == instances.CACHE.bytes <= limit


def test_the_last_size_of_a_template_that_is_discarded_takes_it_along(
    alone: CompileQueue, compiled: CompiledGraph
) -> None:
    released = list[int]()
    found = Instances(compiled.builder.program, 1, 1 << 30, is_dynamic=True, release=lambda _: released.append(1))
    compiled.builder.program(specs(9))
    for size in (3, 5):
        assert found.get_soon(specs(size), compiled.builder.bound_program)
    found.discard(specs(3))
    assert found.bytes > 0 and not released
    found.discard(specs(5))
    assert found.bytes == 0 == instances.CACHE.total[0] and released == [1]


class Kitchen:
    """Instances that count what is compiled; each takes so many of the bytes there are."""

    def __init__(self, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.compiles: list[int] = []
        program = compiled.builder.program(specs(1))
        self._program = replace(program, plan=program.executable, pool=None)
        monkeypatch.setattr(instances, "weight", lambda program: 1)
        self.instances = Instances(self.make, 1, limit)

    def make(self, wanted: Sequence[TensorSpec], **_: Any) -> Any:
        self.compiles.append(wanted[0].shape[1] or 0)
        return self._program

    def serve(self, size: int) -> bool:
        """Meet a size as a session does; whether its instance was there."""
        found = self.instances.find(specs(size))
        if found is not None:
            run(found, size)
            return True
        self.instances.begin(specs(size))
        return False


def settle(own: CompileQueue) -> None:
    until(lambda: not own.is_busy)


@pytest.mark.parametrize("shapes", [12, 40])
def test_many_shapes_that_come_again_all_stay_while_they_fit(
    shapes: int, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, shapes)
    for _ in range(3):
        for size in range(1, shapes + 1):
            kitchen.serve(size)
        settle(alone)
    assert sorted(kitchen.compiles) == list(range(1, shapes + 1))
    assert all(kitchen.serve(size) for _ in range(20) for size in range(1, shapes + 1))


@pytest.mark.parametrize("order", ["in turn", "at random"])
def test_more_shapes_than_fit_do_not_evict_each_other(
    order: str, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue, clock: Clock
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 10)
    random = np.random.default_rng(0)

    def rounds(count: int) -> int:
        """Runs that found an instance."""
        sizes = [size for _ in range(count) for size in range(1, 41)]
        if order == "at random":
            random.shuffle(sizes)
        return sum(kitchen.serve(size) for size in sizes)

    for _ in range(10):
        rounds(2)
        settle(alone)
    assert len(kitchen.compiles) == 10
    hits = rounds(100)
    settle(alone)
    assert len(kitchen.compiles) == 10
    assert hits == 10 * 100


def test_a_new_shape_evicts_the_least_recently_used_once_that_has_not_run_for_a_minute(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue, clock: Clock
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 3)

    def meet(*sizes: int) -> list[int]:
        for size in sizes:
            kitchen.serve(size)
        settle(alone)
        return [size for size in range(1, 20) if kitchen.instances.program(specs(size)) is not None]

    meet(1, 2, 3)
    assert meet(1, 2, 3) == [1, 2, 3]
    assert meet(9, 9) == [1, 2, 3]
    clock.now += program_cache.IDLE_S / 2
    meet(1, 3)
    clock.now += program_cache.IDLE_S / 2 + 1
    assert meet(9, 9) == [1, 3, 9]
    assert meet(10, 10) == [1, 3, 9]
    clock.now += program_cache.IDLE_S + 1
    meet(9)
    assert meet(10, 10) == [3, 9, 10]


def test_shapes_that_come_once_cost_neither_threads_nor_compiles_nor_memory(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 100)
    before = threading.active_count()
    assert not any(kitchen.serve(size) for size in range(1, 3 * compile_queue.MAX_REQUESTS))
    assert threading.active_count() <= before and kitchen.compiles == []
    assert len(alone._requests) <= compile_queue.MAX_REQUESTS


def test_a_shape_that_was_never_missing_is_not_compiled(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 0)
    for size in (*range(1, 8), *range(1, 8)):  # made in no time, each time it comes, and not kept
        assert kitchen.instances.get_soon(specs(size), kitchen.make) is not None
    kitchen.instances.limit = 100
    before = len(kitchen.compiles)
    for _ in range(2):
        kitchen.serve(50)
    settle(alone)
    assert kitchen.compiles[before:] == [50]


def test_the_shape_of_the_file_stays_whatever_comes(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 2)
    kitchen.instances._own = instances.key_of(specs(99))
    own = kitchen.instances.get(specs(99))
    for size in range(1, 20):
        kitchen.instances.get(specs(size))
    assert kitchen.instances.get(specs(99)) is own
    assert len(kitchen.instances._ready) == 3


def test_what_is_not_kept_runs_all_the_same(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 0)
    np.testing.assert_array_equal(kitchen.instances.get(specs(1)).run([ramp(1)])[0], np.maximum(ramp(1), 0))
    assert kitchen.instances.program(specs(1)) is None


def test_one_thread_compiles_for_all_graphs(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue
) -> None:
    may_go_on, at_work, most = threading.Event(), [0], [0]

    def make(wanted: Sequence[TensorSpec], **_: Any) -> Any:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        assert may_go_on.wait(PATIENCE_S)
        at_work[0] -= 1
        return compiled.builder.program(specs(1))

    before = threading.active_count()
    graphs = [Instances(make, 1) for _ in range(4)]
    for graph in graphs:
        for size in range(1, 11):
            for _ in range(2):
                graph.begin(specs(size))
    assert threading.active_count() <= before + 1
    may_go_on.set()
    settle(alone)
    assert most == [1] and all(graph.program(specs(10)) for graph in graphs)


def test_a_wish_of_a_graph_that_is_gone_is_not_made(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 9)
    gone: list[int] = []
    monkeypatch.setattr(alone, "_start", lambda: gone.append(1))
    for _ in range(2):
        kitchen.serve(3)
    assert gone and alone._next() is not None
    del kitchen
    gc.collect()
    assert alone._next() is None


def test_a_compile_that_takes_too_long_is_given_up(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: CompileQueue, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compile_queue, "LIMIT_S", 0.0)
    slow = CompiledGraph(network(1, None), Options(threads=1))
    for _ in range(2):
        slow.instances.begin(specs(7))
    settle(alone)
    assert slow.instances.program(specs(7)) is None and "compilation takes more than 0 seconds" in caplog.text


def test_a_program_that_ends_while_something_is_compiled_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, alone: CompileQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """The interpreter refuses new threads before anything else shows that it ends."""
    asked: list[int] = []

    def submit(pool: ThreadPoolExecutor, work: object) -> object:
        asked.append(1)
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    graph = CompiledGraph(network(1, None), Options(threads=1))
    with monkeypatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", submit)
        for _ in range(2):
            graph.instances.begin(specs(7))
        settle(alone)
    assert asked and caplog.text == ""
    graph.instances.begin(specs(7))
    graph.instances.begin(specs(7))
    settle(alone)
    assert graph.instances.program(specs(7)) is not None


def test_three_hundred_sizes_of_a_session_leave_its_threads_and_memory_as_they_were(alone: CompileQueue) -> None:
    session = Session(network(1, None), threads=2, cache=None)
    before = threading.active_count()
    for size in range(1, 301):
        session.run([ramp(size)])
        assert threading.active_count() <= before + worker_pool.MAX_WAITING + 10
    settle(alone)
    for _ in range(3):
        for size in range(1, 41):
            session.run([ramp(size)])
            assert threading.active_count() <= before + worker_pool.MAX_WAITING + 10
        settle(alone)
    assert all(np.array_equal(session.run([ramp(size)])[0], np.maximum(ramp(size), 0)) for size in range(1, 41))
    until(lambda: threading.active_count() <= before + worker_pool.MAX_WAITING)
    session.close()
    until(lambda: threading.active_count() <= before)
    np.testing.assert_array_equal(session.run([ramp(3)])[0], np.maximum(ramp(3), 0))


def test_sessions_that_come_and_go_leave_neither_threads_nor_files() -> None:
    def once() -> None:
        session = Session(network(1, 64), threads=2, cache=None)
        session.run([ramp(64)])
        session.close()

    once()
    before = held()
    for _ in range(20):
        once()
    assert_no_more(before, turns=20)


def counted(session: Session) -> list[int]:
    """Return the compiles of a session from now on, by input size."""
    made: list[int] = []
    instances = session._executor._graphs.of(session.graph).instances
    make = instances._make
    instances._make = instances._make_now = lambda specs, **more: (  # type: ignore[assignment]
        made.append(specs[0].sizes[1]) or make(specs, **more)  # type: ignore[func-returns-value]
    )
    return made


def must(limit: int, graph: RuntimeGraph | None = None) -> Session:
    return Session(graph or network(1, None), backend="compiled", cache=None, threads=1, instances_max_bytes=limit)


def test_shapes_that_fit_no_budget_are_refused_where_only_machine_code_answers_and_compiled_once(
    alone: CompileQueue,
) -> None:
    session = must(1000)
    made = counted(session)
    for _ in range(5):
        with pytest.raises(CompileError, match=r"exceeds the memory limit: found [\d,]+ bytes, expected at most 1,000"):
            session.run([ramp(64)])
    assert made == [64]
    assert session.backend == "compiled"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shapes_that_fit_are_kept_where_only_machine_code_answers_whichever_came_first(
    count: int, alone: CompileQueue
) -> None:
    one = must(1 << 40)
    one.run([ramp(64)])
    size = one._executor._graphs.of(one.graph).instances.typical_bytes
    one.close()
    session = must(count * size + size // 2)
    made = counted(session)
    for _ in range(30):
        session.run([ramp(64)])
    for newcomer in (65, 66, 67):
        for _ in range(10):
            np.testing.assert_array_equal(session.run([ramp(newcomer)])[0], np.maximum(ramp(newcomer), 0))
    assert made == [64]  # the program of one size is right for the others
    assert instances.CACHE.bytes <= count * size + size // 2


def test_the_files_own_shapes_are_kept_however_small_the_budget(alone: CompileQueue) -> None:
    session = must(0, network(1, 64))
    made = counted(session)
    for _ in range(3):
        session.run([ramp(64)])
    assert made == [64]


def test_sizes_of_a_template_take_its_code_and_the_largest_arena(compiled: CompiledGraph, alone: CompileQueue) -> None:
    compiled.builder.program(specs(9))
    found = Instances(compiled.builder.program, 1, 1 << 30, is_dynamic=True)
    programs = [found.get(specs(size)).program for size in (5, 5000, 6)]
    assert all(program.is_bound for program in programs)
    assert found.bytes == max(map(program_cache.weight, programs)) == instances.CACHE.total[1]
