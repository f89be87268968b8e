"""Images without a batch dimension have the kernels of those that have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session
from engine.pnnx import Operator
from tests.engine.graph.build import INPUT, built, conv, op

WINDOWS: dict[str, Any] = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}
NETWORKS: dict[str, tuple[tuple[int, ...], list[Operator]]] = {
    "image": (
        (16, 14, 15),
        [
            conv("one", "0", "1", (16, 32), padding=(1, 1)),
            op("nn.ReLU", "relu", "1", "2"),
            op("torch.add", "sum", "2 1", "3"),
            conv("two", "3", "4", (32, 8), (5, 5), padding=(2, 2)),
        ],
    ),
    "signal": ((16, 40), [conv("one", "0", "1", (16, 20), (3,), padding=(1,)), op("nn.ReLU", "relu", "1", "2")]),
    "volume": ((4, 6, 7, 8), [conv("one", "0", "1", (4, 12), (3, 3, 3), padding=(1, 1, 1))]),
    "channels": ((32, 9, 9), [conv("one", "0", "1", (32, 32), groups=32), conv("two", "1", "2", (32, 16), (1, 1))]),
    "single": ((1, 9, 9), [conv("one", "0", "1", (1, 1), padding=(1, 1))]),
    "pools": (
        (5, 14, 15),
        [
            op("nn.MaxPool2d", "largest", "0", "1", **WINDOWS, dilation=(1, 1)),
            op("nn.AvgPool2d", "means", "1", "2", **WINDOWS, count_include_pad=True),
            op("nn.AdaptiveAvgPool2d", "mean", "2", "3", output_size=(1, 1)),
        ],
    ),
    "joined": (
        (5, 40),
        [op("nn.AdaptiveMaxPool1d", "even", "0", "1", output_size=3), op("torch.cat", "join", "1 1", "2", dim=0)],
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_they_agree_with_the_reference(name: str) -> None:
    shape, operators = NETWORKS[name]
    graph = built(INPUT, *operators, op("pnnx.Output", "out", operators[-1].outputs[0]), _0=shape)
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    session = Session(graph, backend="compiled", cache=None)
    (found,), (wanted,) = session.run([x]), Session(graph, backend="reference").run([x])
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert "reference" not in {row.get("kernel") for row in session.describe()["operators"]}
