"""Times of layers: by chunks, so that other work on the machine does not count, and by the names of operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, TensorSpec, quantise
from engine.quantisation import timing
from engine.quantisation.layers import QuantisableLayer, find_layers
from engine.quantisation.timing import KernelTime, layer_times, measure_kernels
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(5)
F32 = np.dtype(np.float32)


def weight(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def network() -> RuntimeGraph:
    """Two linear layers that read the same operand, and one that reads their sum."""

    def linear(name: str, source: str, target: str) -> Any:
        return op("nn.Linear", name, source, target, in_features=64, out_features=64, bias=False, weight=weight(64, 64))

    return built(
        op("pnnx.Input", "in0", "", "x"),
        linear("first", "x", "a"),
        linear("second", "x", "b"),
        op("pnnx.Expression", "sum", "a b", "c", expr="add(@0,@1)"),
        linear("third", "c", "d"),
        op("pnnx.Output", "out0", "d"),
        _x=TensorSpec((8, 64), F32),
    )


class Replayed:
    """A session whose profiled runs take given times: for each run, the chunks of each kernel in µs."""

    def __init__(self, runs: Sequence[Sequence[Sequence[float]]], threads: int | None = 1) -> None:
        self._runs = iter(runs)
        self._last: Sequence[Sequence[float]] = ()
        self.threads = threads
        self.count = -1

    def run(self, inputs: Any, profile: bool = False) -> Any:
        self.count += 1
        if profile:
            self._last = next(self._runs, self._last)
        rows = [{"operators": [f"k{at}"], "chunks_us": chunks} for at, chunks in enumerate(self._last)]
        return type("Outputs", (), {"kernels": rows})

    def __enter__(self) -> Replayed:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def replayed(monkeypatch: pytest.MonkeyPatch, *sessions: Any) -> Sequence[Sequence[KernelTime]]:
    found = iter(sessions)
    monkeypatch.setattr(timing, "prepared", lambda *_: next(found))
    nothing: Any = None
    return measure_kernels((nothing, nothing), [], 1)


def test_a_chunk_takes_the_time_of_its_fastest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every run is interrupted for 4 ms, each time in another chunk: no whole run is fast.
    chunks = [[100.0 + 4000 * (at == run % 4) for at in range(4)] for run in range(9)]
    runs = [[each, [7.0]] for each in chunks]
    for kernels in replayed(monkeypatch, Replayed(runs), Replayed(runs)):
        assert kernels == [(("k0",), 400.0), (("k1",), 7.0)]


def test_chunks_are_spread_over_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [[[30.0] * 3, [8.0], [5.0] * 4]]
    (first, second) = replayed(monkeypatch, Replayed(runs, 2), Replayed(runs, 1))
    assert [each.time_us for each in first] == pytest.approx([60.0, 8.0, 10.0])
    assert [each.time_us for each in second] == pytest.approx([90.0, 8.0, 20.0])


def test_a_disturbed_machine_gets_more_rounds_but_not_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, noisy = Replayed([[[10.0]]]), Replayed([[[1000.0 * 0.9**run]] for run in range(100)])
    replayed(monkeypatch, quiet, Replayed([[[10.0]]]))
    assert quiet.count == 9
    replayed(monkeypatch, noisy, Replayed([[[10.0]]]))
    assert noisy.count == 40


def test_a_network_that_runs_on_numpy_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(monkeypatch, Replayed([[]]), Replayed([[]])) == ([], [])


def found_layers() -> tuple[RuntimeGraph, list[QuantisableLayer]]:
    graph = network()
    return graph, find_layers(graph)


@pytest.mark.parametrize(("kernels", "times"), [
    ([(("first",), 3.0), (("second",), 4.0), (("third",), 5.0)], [3, 4, 5]),  # float32
    ([(("first/product/sums", "sum", "c/quantised/bytes"), 3.0)], [3, 0, 0]),  # it also rounds the next input
    ([(("x/quantised/bytes",), 6.0), (("c/quantised/bytes",), 1.0)], [3, 3, 1]),  # readers share it
    ([(("norm", "x/quantised/bytes"), 6.0), (("sum",), 1.0)], [0, 0, 0]),  # of operators that are no layers
    ([(("first", "second"), 6.0)], [3, 3, 0]),
    ([(("third::2",), 2.0), (("third/other",), 1.0), (("thirds",), 9.0)], [0, 0, 3]),
])  # fmt: skip
def test_kernels_count_for_the_layers_that_they_compute(
    kernels: list[tuple[tuple[str, ...], float]], times: list[float]
) -> None:
    _, layers = found_layers()
    assert layer_times([KernelTime(*each) for each in kernels], layers) == pytest.approx(times)


def test_every_layer_of_a_network_has_a_time_in_both_precisions() -> None:
    graph = network()
    result = quantise(graph, [[weight(8, 64)] for _ in range(2)], keep=0, threads=1)
    assert all(layer.float_us > 0 and layer.int8_us > 0 for layer in result.layers)
    assert result.float_ms > 0 and result.int8_ms > 0
