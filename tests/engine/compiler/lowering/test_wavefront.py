"""Layers side by side: the answers of layer after layer, whatever the number of threads and whichever comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host, describe
from engine.compiler.kernels.recurrent.recurrence import RecurrentStack
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.steps import KernelStep
from engine.options import Options
from engine.passes import WAVEFRONT
from engine.tensor import TensorSpec
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import check, check_threads, graph, network, numbers

TYPES = ("nn.LSTM", "nn.GRU")
# Recurrences make the input's product themselves where there are registers for both.
is_wide = pytest.mark.skipif(LEVELS[0] != "avx512", reason="layers are single chunks on processors with 32 registers")


def stack(type: str, *, layers: int = 2, steps: int = 40, batch: int = 1, ways: int = 1, **given: Any) -> RuntimeGraph:
    states = "h c" if type == "nn.LSTM" else "h"
    outputs = f"1 {states}"
    net = network(type, 64, 64, layers=layers, ways=ways, outputs=outputs, **given)
    return graph(net, results=outputs, _0=(steps, batch, 64))


def stacks(net: RuntimeGraph, *shape: int, **options: Any) -> list[int]:
    """Return the number of pipelined layers of every kernel that pipelines."""
    specs = [TensorSpec(shape, np.dtype(np.float32))]
    outputs = [op.inputs[0] for op in net.source.operators if op.type == "pnnx.Output"]
    lowering = Lowering(
        net.operators, net.infer(specs), [port.operand for port in net.inputs], outputs, describe("avx512"),
        Options(cache=None, **options),
    )  # fmt: skip
    lower(lowering, lambda _number: None)
    kernels = [step.kernel for step in lowering.steps if isinstance(step, KernelStep)]
    return [kernel.chunks for kernel in kernels if isinstance(kernel, RecurrentStack)]


@is_wide
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("layers", [2, 3, 5])
@pytest.mark.parametrize("steps", [16, 17, 101])
def test_any_number_of_layers_agrees_with_the_reference(type: str, layers: int, steps: int) -> None:
    check(stack(type, layers=layers, steps=steps), (steps, 1, 64))


@is_wide
@pytest.mark.parametrize("type", TYPES)
def test_any_number_of_threads_gives_the_same_bits_run_after_run(type: str) -> None:
    check_threads(stack(type, layers=4, steps=24), numbers(3, 24, 1, 64))


@is_wide
def test_operators_that_read_each_other_agree_with_the_reference_and_are_told_of() -> None:
    session = check(chained("1 h1 c1", "2 h2 c2", results="2 h1 c1 h2 c2"), (40, 1, 64), name="first")
    told = session.describe()
    (second,) = [row for row in told["operators"] if row["name"] == "second"]
    assert second["kernel"] == "fused"
    assert {"name": WAVEFRONT, "removed": 1, "changed": ["second"]}.items() <= next(
        {**each, "changed": list(each["changed"])} for each in told["compiler"]["passes"] if each["name"] == WAVEFRONT
    ).items()


def chained(first: str, second: str, *, given: str = "1", results: str, type: str = "nn.LSTM") -> RuntimeGraph:
    """Two networks of a layer each, of which the second reads what the first gives."""
    nets = [network(type, 64, 64, inputs=inputs, outputs=to) for inputs, to in (("0", first), (given, second))]
    named = [replace(net, name=name) for net, name in zip(nets, ("first", "second"), strict=True)]
    return graph(*named, results=results, _0=(40, 1, 64))


def test_layers_are_side_by_side_where_each_is_a_single_chunk() -> None:
    def of(*shape: int, **given: Any) -> list[int]:
        return stacks(stack("nn.LSTM", steps=shape[0], batch=shape[1], **given), *shape)

    assert of(40, 1, 64) == [2]
    assert of(40, 1, 64, layers=4) == [4]
    assert of(40, 1, 64, layers=1) == []
    assert of(40, 1, 64, ways=2) == []
    assert of(40, 8, 64) == []
    assert of(3, 1, 64) == []


def test_so_are_operators_unless_one_begins_with_the_state_the_other_ends_with() -> None:
    shape = (40, 1, 64)
    assert stacks(chained("1 h1 c1", "2 h2 c2", results="2 h2"), *shape) == [2]
    assert stacks(chained("1 h1 c1", "2 h2 c2", results="1 2 h1 h2"), *shape) == [2]
    assert stacks(chained("1 h1 c1", "2 h2 c2", given="1 h1 c1", results="2"), *shape) == []
    assert stacks(chained("1 h1 c1", "2 h2 c2", given="0", results="1 2"), *shape) == []
    assert stacks(chained("1 h1", "2 h2", results="2", type="nn.GRU"), *shape) == [2]


@is_wide
def test_sequences_of_any_length_share_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assemble, made = object_code.assemble, list[str]()

    def noted(text: str, host: Host) -> bytes:
        made.append(text)
        return assemble(text, host)

    monkeypatch.setattr(object_code, "assemble", noted)
    net = graph(network("nn.GRU", 64, 64, layers=3, outputs="1 h"), results="1 h", _0=(None, 1, 64))
    session, reference = Session(net, backend="compiled", cache=None, threads=2), Session(net, backend="reference")
    kernels = []
    for steps in (40, 17, 101, 64, 16):
        x = numbers(steps, steps, 1, 64)
        for mine, theirs in zip(session.run([x]), reference.run([x]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
        kernels.append(len(made))
    assert kernels[0] == kernels[-1]


def test_the_pass_can_be_left_out() -> None:
    assert stacks(stack("nn.LSTM"), 40, 1, 64, passes_off=frozenset({WAVEFRONT})) == []
