"""Kernels that store bfloat16 for the product after them: the same numbers as with a step that rounds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.compiler.codegen.host import detect
from engine.graph import RuntimeGraph
from engine.pnnx.graph import Operator
from engine.tensor import Array
from tests.engine.graph.build import built, conv, op

pytestmark = pytest.mark.skipif(not detect().has_bfloat16, reason="needs AVX512-BF16")
RANDOM = np.random.default_rng(7)


def chain(x: Array, operators: list[Operator], outputs: str) -> RuntimeGraph:
    ports = [op("pnnx.Output", f"out{name}", name) for name in outputs]
    return built(op("pnnx.Input", "in", "", "0"), *operators, *ports, _0=TensorSpec(x.shape, x.dtype))


def run(x: Array, operators: list[Operator], outputs: str) -> tuple[list[Array], Counter[str]]:
    session = Session(chain(x, operators, outputs), "compiled", 2, precision="bf16", cache=None)
    session.run([np.full_like(x, np.nan)])  # leaves what zeros have to withstand
    found = session.run([x], profile=True)
    return list(found), Counter(each["kernel"] for each in found.kernels)


def linear(source: str, target: str, sizes: tuple[int, int]) -> Operator:
    weight = RANDOM.standard_normal(sizes[::-1]).astype(np.float32)
    given = {"in_features": sizes[0], "out_features": sizes[1], "bias": False}
    return op("nn.Linear", f"linear{target}", source, target, weight=weight, **given)


ROWS = RANDOM.standard_normal((2, 37, 64)).astype(np.float32)
IMAGE = RANDOM.standard_normal((2, 48, 13, 9)).astype(np.float32)
NORM = {"normalized_shape": [64], "eps": 1e-5, "elementwise_affine": False}
POOL = {"kernel_size": [2, 2], "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "ceil_mode": False}
CASES = {
    "linear": (ROWS, [linear("0", "1", (64, 34)), op("nn.GELU", "gelu", "1", "2")], linear("2", "3", (34, 40))),
    "wide": (ROWS, [linear("0", "2", (64, 1024))], linear("2", "3", (1024, 40))),
    "norm": (ROWS, [op("nn.LayerNorm", "norm", "0", "2", **NORM)], linear("2", "3", (64, 33))),
    "border": (
        IMAGE,
        [conv("a", "0", "1", (48, 34), (1, 1)), op("nn.ReLU", "relu", "1", "2")],
        conv("b", "2", "3", (34, 40), (3, 3), padding=(1, 1)),
    ),
    "depthwise": (
        IMAGE,
        [conv("a", "0", "2", (48, 48), (3, 3), padding=(1, 1), groups=48)],
        conv("b", "2", "3", (48, 40), (1, 1)),
    ),
    "stem": (
        RANDOM.standard_normal((1, 3, 40, 30)).astype(np.float32),
        [conv("a", "0", "2", (3, 34), (7, 7), padding=(3, 3), stride=(2, 2))],
        conv("b", "2", "3", (34, 40), (3, 3), padding=(1, 1)),
    ),
    "pool": (IMAGE, [op("nn.MaxPool2d", "a", "0", "2", **POOL)], conv("b", "2", "3", (48, 40), (1, 1))),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_stores_what_a_step_would_round(case: str) -> None:
    x, before, after = CASES[case]
    (first,), kinds = run(x, before, "2")
    (expected,), _ = run(first, [op(after.type, "b", "0", "3", **after.params, **arrays(after))], "3")
    (found,), both = run(x, [*before, after], "3")
    np.testing.assert_array_equal(found, expected)
    assert both["map"] == kinds["map"]


@pytest.mark.parametrize("outputs", ["23", "34"], ids=["returned", "read by another operator"])
def test_results_that_others_read_stay_floats(outputs: str) -> None:
    x, before, after = CASES["linear"]
    (first,), _ = run(x, before, "2")
    more = [op("F.relu", "more", "2", "4")] if "4" in outputs else []
    found, _ = run(x, [*before, after, *more], outputs)
    answers = dict(zip(outputs, found, strict=True))
    (expected,), _ = run(first, [op(after.type, "b", "0", "3", **after.params, **arrays(after))], "3")
    np.testing.assert_array_equal(answers["3"], expected)
    wanted = first if "2" in outputs else np.maximum(first, 0)
    np.testing.assert_array_equal(answers.get("2", answers.get("4")), wanted)


def test_channels_of_zeros_share_no_memory_with_other_zeros() -> None:
    x = 1 + RANDOM.random((1, 3, 66, 66)).astype(np.float32)
    operators = [
        conv("a", "0", "1", (3, 65), (3, 3)),
        conv("b", "1", "2", (65, 64), (3, 3)),
        conv("c", "2", "3", (64, 64), (3, 3), padding=(1, 1)),
    ]
    graph = chain(x, operators, "3")
    session = Session(graph, "compiled", 2, precision="bf16", cache=None)
    for sign in (1, -1, 1):
        found = session.run([sign * x], profile=True)
        expected = sign * Session(graph, "reference").run([x])[0]
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=0.02 * np.abs(expected).max())
    assert "winograd" in {each["kernel"] for each in found.kernels}  # it has a word that must be zero


def arrays(operator: Operator) -> dict[str, Array]:
    return {name: each.data for name, each in operator.attributes.items()}
