"""Instances: what may stop a run of machine code, and what is left of it afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine import RunCancelledError, Session
from engine.cancellation import cancelling
from engine.compiler import CompiledGraph
from engine.compiler.runtime.instance import Instance
from engine.compiler.runtime.memory import new_arena
from engine.compiler.runtime.protocol import GENERATION, IDLE, STOP, TRACE
from engine.compiler.runtime.worker_pool import _STOP, _WORKER
from engine.options import Options
from engine.pnnx import Operator
from engine.tensor import TensorSpec
from tests.engine.graph.build import F32, INPUT, built, op
from tests.patience import until

X = np.linspace(-2, 2, 3_000_000, dtype=F32).reshape(1, 3, 1000, 1000)


def pools(count: int) -> list[Operator]:
    return [
        op("nn.AvgPool2d", f"pool{k}", str(k), str(k + 1), kernel_size=(5, 5), stride=(1, 1), padding=(2, 2))
        for k in range(count)
    ]


class Client:
    """Goes away when it was asked ``patience`` times."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.asked = 0

    def is_gone(self) -> bool:
        self.asked += 1
        return self.asked > self.patience


def test_a_run_stops_between_kernels() -> None:
    net = built(INPUT, *pools(8), op("pnnx.Output", "out", "8"), _0=X.shape)
    session = Session(net, backend="compiled", cache=None)
    session.prepare()
    client = Client(2)
    with pytest.raises(RunCancelledError, match=r"pool\d: the run was cancelled"):
        session.run([X], cancelled=client.is_gone)
    assert client.asked == 3
    expected = session.run([X])[0]
    np.testing.assert_array_equal(session.run([X], cancelled=Client(100).is_gone)[0], expected)


def test_a_run_that_may_be_cancelled_walks_every_step_once_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    net = built(INPUT, *pools(8), op("pnnx.Output", "out", "8"), _0=X.shape)
    instance = CompiledGraph(net, Options()).instances.get([TensorSpec(X.shape, X.dtype)])
    tables, steps, expected = instance._tables, len(instance.program.executable.steps), instance.run([X])[0]
    pieces = tables.segments[tables.cancellable_rows[0]]
    assert len(pieces) > 2
    assert [step for first, last in pieces for step in range(first, last)] == [*range(steps)]
    with cancelling(lambda: False):
        np.testing.assert_array_equal(instance.run([X])[0], expected)


def test_a_thread_that_is_late_for_a_run_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called for a row, was not scheduled until the run had ended, and looks up the row's steps only then."""
    net = built(INPUT, *pools(8), op("pnnx.Output", "out", "8"), _0=X.shape)
    instance = CompiledGraph(net, Options(threads=1)).instances.get([TensorSpec(X.shape, X.dtype)])
    run, called = instance._run, []
    monkeypatch.setattr(instance, "_run", lambda team, *rest: called.append(rest[0]) or run(team, *rest))
    for _ in range(3):
        instance.run([X])
        with cancelling(lambda: False):
            instance.run([X])
    assert len(called) > 3 * 3
    for generation in called:
        assert not computed_by_late_thread(instance, generation)


def test_a_thread_that_is_late_for_a_run_of_other_sizes_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that share an instance differ in steps' chunks, and in the rows of a run that may be cancelled."""
    net = built(INPUT, *pools(8), op("pnnx.Output", "out", "8"), _0=(1, 3, None, None))
    compiled = CompiledGraph(net, Options(threads=2))
    programs = [
        compiled.instances.get([TensorSpec((1, 3, size, size), X.dtype)]).program for size in (40, 1000, 90, 700)
    ]
    instance = Instance(programs[0], 2)
    run, called = instance._run, list[int]()
    monkeypatch.setattr(instance, "_run", lambda team, *rest: called.append(rest[0]) or run(team, *rest))
    for program in [*programs, *programs]:
        instance.bind(program)
        for generation in called:
            assert not computed_by_late_thread(instance, generation)
        instance._use_arena(new_arena(program.number(program.plan.arena_bytes)))
        x = X.reshape(-1)[: 3 * program.kernel_outputs[0].shape[2] ** 2].reshape(program.kernel_outputs[0].shape)
        expected = compiled.run([x])[0]
        np.testing.assert_array_equal(instance.run([x])[0], expected)
        with cancelling(lambda: False):
            np.testing.assert_array_equal(instance.run([x])[0], expected)
    assert len(called) > 3 * len(programs)


def computed_by_late_thread(instance: Instance, generation: int) -> int:
    """Let a worker walk a generation that is over; how many chunks it computed."""
    tables, address_of = instance._tables, instance.program.code.address
    team, trace = tables.make_team(), np.zeros_like(tables.trace)
    words, idle = team.view(np.int64), team.view(np.int32)[IDLE.offset // 4 :]
    words[GENERATION.offset // 8], words[TRACE // 8] = generation, trace.ctypes.data
    worker = threading.Thread(target=_WORKER(address_of("worker")), args=(team.ctypes.data, 0, 1), daemon=True)
    worker.start()
    until(lambda: idle[0])  # asleep until the next run
    _STOP(address_of("stop"))(team.ctypes.data, STOP, None)
    worker.join()
    return int(np.count_nonzero(trace[:, 1]))


def test_a_run_stops_before_an_operator_of_the_reference() -> None:
    net = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("aten::fill_diagonal", "filled", "1", "2", fill_value=0.0, wrap=False),
        op("nn.Sigmoid", "sigmoid", "2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(1, 3),
    )
    session = Session(net, backend="compiled", cache=None)
    session.prepare()
    x = np.array([[1, 2, 3]], F32)
    for patience, place in enumerate(("relu", r"filled \(aten::fill_diagonal\)", "sigmoid")):
        with pytest.raises(RunCancelledError, match=f"^{place}: the run was cancelled"):
            session.run([x], cancelled=Client(patience).is_gone)
    (result,) = session.run([x], cancelled=Client(3).is_gone)
    np.testing.assert_allclose(result, 1 / (1 + np.exp([[0, -2, -3]])), rtol=1e-6)


def test_a_measured_run_stops_too() -> None:
    net = built(INPUT, *pools(2), op("pnnx.Output", "out", "2"), _0=X.shape)
    with pytest.raises(RunCancelledError):
        Session(net, backend="compiled", cache=None).run([X], profile=True, cancelled=Client(0).is_gone)


def test_a_measured_run_tells_which_thread_had_what_of_every_kernel_and_when() -> None:
    net = built(
        INPUT, *pools(3), op("aten::exponential", "drawn", "3", "4"), op("pnnx.Output", "out", "4"), _0=(1, 8, 64, 64)
    )
    session = Session(net, backend="compiled", cache=None, threads=2)
    x = np.ones((1, 8, 64, 64), F32)
    session.run([x])
    run = session.run([x], profile=True)
    assert run.kernels[-1]["kernel"] == "reference" and len(run.kernels) > 3
    before = 0.0
    for kernel in run.kernels:
        spans = kernel["spans"]
        assert len({span["thread"] for span in spans}) == len(spans) and {span["thread"] for span in spans} <= {0, 1}
        assert all(span["begin_us"] <= span["end_us"] and span["chunks"] > 0 for span in spans)
        assert before <= min(span["begin_us"] for span in spans)  # no thread begins before all have ended
        before = max(span["end_us"] for span in spans)
    assert not session.run([x]).kernels


def test_a_measured_run_tells_what_memory_holds_and_nothing_of_it_lies_on_anything_else() -> None:
    net = built(INPUT, *pools(4), op("pnnx.Output", "out", "4"), _0=(1, 8, 20, 20))
    x = np.ones((1, 8, 20, 20), F32)
    for backend in ("compiled", "reference"):
        run = Session(net, backend=backend, cache=None, threads=1).run([x], profile=True)
        assert {"1", "2", "3"} <= {name for each in run.buffers for name in each["operands"]}
        assert all(0 <= each["first"] <= each["last"] <= len(run.kernels or run.profile or ()) for each in run.buffers)
        for at, one in enumerate(run.buffers):
            for other in run.buffers[:at]:
                is_later = one["last"] < other["first"] or other["last"] < one["first"]
                low, high = sorted((one, other), key=lambda each: each["offset"])
                assert is_later or low["offset"] + low["bytes"] <= high["offset"]
