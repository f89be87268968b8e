"""New shapes are compiled once they come again, in the background; known ones never wait, and bytes are bounded."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from engine import CompileError, Session
from engine.compiler import CompiledGraph
from engine.compiler.runtime import background, instances, parking, shelf
from engine.compiler.runtime.background import Background
from engine.compiler.runtime.instances import Instances
from engine.compiler.runtime.shelf import Shelf, is_clearly_more
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
    until(lambda: not background.BACKGROUND.is_busy)
    assert len(tries) == 1
    with pytest.raises(CompileError):
        failing.get(specs(5))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Background:
    """A process in which nobody else has compiled anything."""
    own, empty = Background(), Shelf()
    for module in (background, instances):
        monkeypatch.setattr(module, "SHELF", empty)
    monkeypatch.setattr(instances, "BACKGROUND", own)
    return own


def test_of_what_seldom_came_the_oldest_goes_and_what_came_often_stays(
    alone: Background, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "weight", lambda program: 1 << 20)
    monkeypatch.setattr(shelf, "PASSING_BYTES", 3 << 20)
    found = Instances(compiled.builder.program, 1, 1 << 30, lend=True)

    def meet(*sizes: int) -> list[int]:
        for size in sizes:
            assert found.find(specs(size)) or found.get_soon(specs(size), compiled.builder.program)
        return [size for size in range(2, 20) if found.holds(instances.key_of(specs(size)))]

    assert meet(2, 3, 4, 5, 6) == [4, 5, 6]
    assert meet(4, 4, 7, 8, 9) == [4, 7, 8, 9]
    assert meet(2, 10, 11, 12) == [4, 10, 11, 12]
    assert meet(2, 13, 14, 15) == [2, 4, 13, 14, 15]  # made again and again, it stays


class Kitchen:
    """Instances that count what is compiled; each takes so many of the bytes there are."""

    def __init__(self, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.compiles: list[int] = []
        self._program = compiled.builder.program(specs(1))
        monkeypatch.setattr(instances, "weight", lambda program: 1)
        self.instances = Instances(self.make, 1, limit)

    def make(self, wanted: Sequence[TensorSpec], **_: Any) -> Any:
        self.compiles.append(wanted[0].shape[1] or 0)
        return self._program

    def serve(self, size: int) -> bool:
        """Meet a size as a session does; whether its instance was there."""
        if self.instances.find(specs(size)) is not None:
            return True
        self.instances.begin(specs(size))
        return False


def settle(own: Background) -> None:
    until(lambda: not own.is_busy)


@pytest.mark.parametrize("shapes", [12, 40])
def test_many_shapes_that_come_again_all_stay_while_they_fit(
    shapes: int, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, shapes)
    for _ in range(3):
        for size in range(1, shapes + 1):
            kitchen.serve(size)
        settle(alone)
    assert sorted(kitchen.compiles) == list(range(1, shapes + 1))
    assert all(kitchen.serve(size) for _ in range(20) for size in range(1, shapes + 1))


@pytest.mark.parametrize("order", ["in turn", "at random"])
def test_more_shapes_than_fit_do_not_push_each_other_out(
    order: str, compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
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
    warm = len(kitchen.compiles)
    hits = rounds(100)
    settle(alone)
    assert len(kitchen.compiles) == warm <= 20
    assert hits > 100 * 9


def test_what_is_wanted_clearly_more_often_takes_the_place_of_what_is_not(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 3)
    for _ in range(30):
        for size in (1, 2, 3):
            kitchen.serve(size)
        settle(alone)
    found = 0
    for _ in range(1000):
        found += kitchen.serve(9)
        settle(alone)
    assert found > 700 and kitchen.instances.program(specs(9)) is not None
    assert sum(kitchen.instances.program(specs(size)) is not None for size in (1, 2, 3)) == 2


def test_shapes_that_come_once_cost_neither_threads_nor_compiles_nor_memory(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 100)
    before = threading.active_count()
    assert not any(kitchen.serve(size) for size in range(1, 3 * background.MAX_WISHES))
    assert threading.active_count() <= before and kitchen.compiles == []
    assert len(alone._wishes) <= background.MAX_WISHES


def test_what_nobody_had_to_do_without_is_not_compiled(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
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
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 2)
    kitchen.instances._own = instances._key(specs(99))
    own = kitchen.instances.get(specs(99))
    for size in range(1, 20):
        kitchen.instances.get(specs(size))
    assert kitchen.instances.get(specs(99)) is own
    assert len(kitchen.instances._ready) == 3


def test_what_is_not_kept_runs_all_the_same(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
) -> None:
    kitchen = Kitchen(compiled, monkeypatch, 0)
    np.testing.assert_array_equal(kitchen.instances.get(specs(1)).run([ramp(1)])[0], np.maximum(ramp(1), 0))
    assert kitchen.instances.program(specs(1)) is None


def test_one_thread_compiles_for_all_graphs(
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
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
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background
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
    compiled: CompiledGraph, monkeypatch: pytest.MonkeyPatch, alone: Background, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "LIMIT_S", 0.0)
    slow = CompiledGraph(network(1, None), Options(threads=1))
    for _ in range(2):
        slow.instances.begin(specs(7))
    settle(alone)
    assert slow.instances.program(specs(7)) is None and "it takes more than 0 seconds" in caplog.text


def test_a_program_that_ends_while_something_is_compiled_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, alone: Background, caplog: pytest.LogCaptureFixture
) -> None:
    """The interpreter gives no more threads before anybody else can tell that it ends."""
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


def test_chance_is_not_enough_to_change_places() -> None:
    assert not is_clearly_more(8, 0) and not is_clearly_more(80, 60) and is_clearly_more(100, 30)


def test_three_hundred_sizes_of_a_session_leave_its_threads_and_memory_as_they_were(alone: Background) -> None:
    session = Session(network(1, None), threads=2, cache=None)
    before = threading.active_count()
    for size in range(1, 301):
        session.run([ramp(size)])
        assert threading.active_count() <= before + parking.MAX_PARKED + 10
    settle(alone)
    for _ in range(3):
        for size in range(1, 41):
            session.run([ramp(size)])
            assert threading.active_count() <= before + parking.MAX_PARKED + 10
        settle(alone)
    assert all(np.array_equal(session.run([ramp(size)])[0], np.maximum(ramp(size), 0)) for size in range(1, 41))
    until(lambda: threading.active_count() <= before + parking.MAX_PARKED)
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
    """The compiles of a session from now on, by the size of what was compiled for."""
    made: list[int] = []
    instances = session._executor._compiled(session.graph).instances
    make = instances._make
    instances._make = instances._make_now = lambda specs, **more: (  # type: ignore[assignment]
        made.append(specs[0].sizes[1]) or make(specs, **more)  # type: ignore[func-returns-value]
    )
    return made


def must(limit: int, graph: RuntimeGraph | None = None) -> Session:
    return Session(graph or network(1, None), backend="compiled", cache=None, threads=1, instances_max_bytes=limit)


def test_shapes_that_fit_no_budget_are_refused_where_only_machine_code_answers_and_compiled_once(
    alone: Background,
) -> None:
    session = must(1000)
    made = counted(session)
    for _ in range(5):
        with pytest.raises(CompileError, match=r"too large to be kept: found [\d,]+ bytes, expected at most 1,000"):
            session.run([ramp(64)])
    assert made == [64]
    assert session.backend == "compiled"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shapes_that_fit_are_kept_where_only_machine_code_answers_whoever_came_first(
    count: int, alone: Background
) -> None:
    one = must(1 << 40)
    one.run([ramp(64)])
    size = one._executor._compiled(one.graph).instances.typical_bytes
    one.close()
    session = must(count * size + size // 2)
    made = counted(session)
    for _ in range(30):
        session.run([ramp(64)])
    for newcomer in (65, 66, 67):
        for _ in range(10):
            np.testing.assert_array_equal(session.run([ramp(newcomer)])[0], np.maximum(ramp(newcomer), 0))
    assert made == [64, 65, 66, 67]
    assert instances.SHELF.bytes <= count * size + size // 2


def test_the_files_own_shapes_are_kept_however_small_the_budget(alone: Background) -> None:
    session = must(0, network(1, 64))
    made = counted(session)
    for _ in range(3):
        session.run([ramp(64)])
    assert made == [64]
