"""Steps of a recurrence shared by threads: bit-identical results for any number of threads, in every run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.compiler.kernels.recurrent.blocking import SHARED_SIZE
from engine.compiler.kernels.recurrent.recurrence import Recurrence
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.steps import KernelStep
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import check, check_threads, graph, network, numbers
from tests.engine.compiler.machines import MACHINES

TYPES = ("nn.LSTM", "nn.GRU", "nn.RNN")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that caches are tiny, so that small layers are shared."""
    monkeypatch.setattr("engine.compiler.kernels.recurrent.blocking.SHARED_SIZE", 0.0)
    monkeypatch.setattr("engine.compiler.kernels.recurrent.blocking.GROUP_SHARE", 1e-3)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("layers", "steps", "batch", "units"), [(1, 1, 1, 70), (2, 30, 1, 96), (1, 7, 5, 130)])
def test_answers_are_the_references(type: str, layers: int, steps: int, batch: int, units: int) -> None:
    outputs = "1 h c" if type == "nn.LSTM" else "1 h"
    net = graph(network(type, 24, units, layers=layers, outputs=outputs), results=outputs, _0=(steps, batch, 24))
    check(net, (steps, batch, 24))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("type", TYPES)
def test_sequences_of_any_length_with_the_same_session(type: str) -> None:
    net = graph(network(type, 24, 80, outputs="1"), results="1", _0=(None, 1, 24))
    session, reference = (Session(net, backend=each, cache=None, threads=2) for each in ("compiled", "reference"))
    for steps in (5, 31, 7, 1, 64, 12):
        x = numbers(5, steps, 1, 24)
        for mine, theirs in zip(session.run([x]), reference.run([x]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("type", TYPES)
def test_any_number_of_threads_gives_the_same_bits_run_after_run(type: str) -> None:
    net = graph(network(type, 16, 128, outputs="1"), results="1", _0=(24, 1, 16))
    check_threads(net, numbers(3, 24, 1, 16))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("ways", "batch", "options"), [(1, 1, {}), (1, 8, {}), (2, 1, {}), (1, 64, {}), (1, 1, {"proj_size": 8})]
)
def test_unidirectional_layers_with_few_rows_and_large_weights_are_shared(
    machine: str, ways: int, batch: int, options: dict[str, int]
) -> None:
    host, shape = MACHINES[machine], (3, batch, 8)
    for units, is_far in ((16, False), (math.isqrt(int(SHARED_SIZE * host.memory.second_bytes / 16)) + 1, True)):
        operator = network("nn.LSTM", 8, units, outputs="1", ways=ways, **options)
        net = graph(operator, results="1", _0=shape)
        outputs = [op.inputs[0] for op in net.source.operators if op.type == "pnnx.Output"]
        specs = net.infer([TensorSpec(shape, np.dtype(np.float32))])
        lowering = Lowering(net.operators, specs, [port.operand for port in net.inputs], outputs, host)
        lower(lowering)
        kernels = [step.kernel for step in lowering.steps if isinstance(step, KernelStep)]
        (kernel,) = [each for each in kernels if isinstance(each, Recurrence)]
        assert (kernel.groups > 1) == (is_far and ways == 1 and batch < 64 and not options)
