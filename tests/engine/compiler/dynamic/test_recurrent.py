"""Recurrent layers with a dynamic number of steps: one program serves every sequence length."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.lowering.rules.recurrent import kernels as recurrent_kernels
from engine.pnnx import Operator
from tests.engine.compiler.dynamic.checking import check
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import network
from tests.engine.graph.build import op

STEPS = (2, 3, 5, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 23, 29, 31, 32, 33, 47, 64, 65, 97, 128, 131)
TYPES = ("nn.LSTM", "nn.GRU", "nn.RNN")


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("layers", "ways"), [(1, 1), (1, 2), (2, 2), (3, 1)])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("units", [64, pytest.param(256, marks=pytest.mark.slow)])
def test_open_steps(type: str, layers: int, ways: int, batch: int, units: int) -> None:
    layer = network(type, 32, units, layers=layers, ways=ways, batch_first=False)
    check([layer], (None, batch, 32), (40,), tolerance=1e-5, threads=1 + layers % 2, sizes=STEPS, least=20)


def test_layers_in_several_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_kernels, "PIECE_FLOPS", 1_000_000)
    layer = network("nn.LSTM", 32, 64, layers=2, ways=2, batch_first=False)
    template = check([layer], (None, 1, 32), (100,), tolerance=1e-5, sizes=STEPS, least=31)
    assert template.executable.steps.kinds.count("recurrent") > 4


def test_rows_of_a_batch_with_open_steps() -> None:
    layer = network("nn.GRU", 16, 32, batch_first=True)
    linear = op("nn.Linear", "linear", "1", "2", in_features=32, out_features=9, bias=False,
                weight=np.random.default_rng(1).standard_normal((9, 32)).astype(np.float32))  # fmt: skip
    layers: list[Operator] = [layer, linear]
    check(layers, (3, None, 16), (24,), tolerance=1e-5, sizes=STEPS, least=20)
