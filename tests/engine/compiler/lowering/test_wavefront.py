"""Layers side by side: the answers of layer after layer, whatever the number of threads and whichever comes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.recurrent.stack import RecurrentStack
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.steps import KernelStep
from engine.tensor import Array, TensorSpec
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import check, graph, network, numbers

TYPES = ("nn.LSTM", "nn.GRU")
# Recurrences make the input's product themselves where there are registers for both.
is_wide = pytest.mark.skipif(LEVELS[0] != "avx512", reason="layers are single chunks on processors with 32 registers")


def stack(type: str, *, layers: int = 2, steps: int = 40, batch: int = 1, ways: int = 1, **given: Any) -> RuntimeGraph:
    states = "h c" if type == "nn.LSTM" else "h"
    outputs = f"1 {states}"
    net = network(type, 64, 64, layers=layers, ways=ways, outputs=outputs, **given)
    return graph(net, results=outputs, _0=(steps, batch, 64))


def kernels(net: RuntimeGraph, *shape: int) -> list[KernelStep]:
    specs = [TensorSpec(shape, np.dtype(np.float32))]
    outputs = [op.inputs[0] for op in net.source.operators if op.type == "pnnx.Output"]
    lowering = Lowering(
        net.operators, net.infer(specs), [port.operand for port in net.inputs], outputs, describe("avx512")
    )
    lower(lowering, lambda _number: None)
    return [step for step in lowering.steps if isinstance(step, KernelStep)]


@is_wide
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("layers", [2, 3, 5])
@pytest.mark.parametrize("steps", [16, 17, 101])
def test_any_number_of_layers_agrees_with_the_reference(type: str, layers: int, steps: int) -> None:
    check(stack(type, layers=layers, steps=steps), (steps, 1, 64))


@is_wide
@pytest.mark.parametrize("type", TYPES)
def test_any_number_of_threads_gives_the_same_bits_run_after_run(type: str) -> None:
    net, x = stack(type, layers=4, steps=24), numbers(3, 24, 1, 64)

    def run(threads: int) -> list[Array]:
        session = Session(net, backend="compiled", cache=None, threads=threads)
        first = session.run([x])
        for _ in range(300):
            for mine, theirs in zip(session.run([x]), first, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        return list(first)

    alone = run(1)
    for threads in (2, 3, 7):
        for mine, theirs in zip(run(threads), alone, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_layers_are_side_by_side_where_each_is_a_single_chunk() -> None:
    def stacks(*shape: int, **given: Any) -> list[int]:
        found = kernels(stack("nn.LSTM", steps=shape[0], batch=shape[1], **given), *shape)
        return [step.kernel.chunks for step in found if isinstance(step.kernel, RecurrentStack)]

    assert stacks(40, 1, 64) == [2]
    assert stacks(40, 1, 64, layers=4) == [4]
    assert stacks(40, 1, 64, layers=1) == []
    assert stacks(40, 1, 64, ways=2) == []
    assert stacks(40, 8, 64) == []
    assert stacks(3, 1, 64) == []
