"""Elements whose finiteness the algorithm decides: as few as depend on a number that is not finite."""

from __future__ import annotations

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from tests.engine.graph.build import built, op
from tests.fuzz.agreement import DisagreementError, compare
from tests.fuzz.conditioning import has_any_infinity, undecided

Array = np.ndarray
RANDOM = np.random.default_rng(3)


def graph_of(type_: str, *inputs: Array, **params: object) -> RuntimeGraph:
    names = [str(number) for number, _ in enumerate(inputs)]
    ports = [op("pnnx.Input", f"in{name}", "", name) for name in names]
    specs = {f"_{name}": TensorSpec(each.shape, each.dtype) for name, each in zip(names, inputs, strict=True)}
    return built(*ports, op(type_, "it", " ".join(names), "y", **params), op("pnnx.Output", "out", "y"), **specs)


def mask_of(graph: RuntimeGraph, *inputs: Array) -> Array:
    expected = Session(graph, backend="reference").run([*inputs])
    (mask,) = undecided(graph, [*inputs], expected)
    assert mask is not None
    return np.broadcast_to(mask, expected[0].shape)


def test_a_transform_is_free_only_in_the_rows_that_have_a_nan() -> None:
    x = RANDOM.standard_normal((3, 8)).astype(np.float32)
    x[1, 5] = np.nan
    mask = mask_of(graph_of("torch.fft.fft", x, n=None, dim=-1, norm=None), x)
    np.testing.assert_array_equal(mask.all(1), [False, True, False])
    np.testing.assert_array_equal(mask.any(1), [False, True, False])


def test_a_convolution_is_free_only_in_the_channels_whose_weights_are_not_finite() -> None:
    x, weight = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((1, 2, 5, 5), (3, 2, 3, 3)))
    weight[2, 0, 0, 0] = np.inf
    graph = graph_of("F.conv2d", x, weight, bias=None, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    mask = mask_of(graph, x, weight)
    assert mask[:, 2].all() and not mask[:, :2].any()


def test_what_is_decided_is_compared_and_what_is_not_is_left_out() -> None:
    its, mine = np.ones((2, 3)), np.ones((2, 3))
    mine[1] = np.nan
    compare("x", mine, its, undecided=np.array([[False], [True]]))
    with pytest.raises(DisagreementError):
        compare("x", mine, its, undecided=np.array([[True], [False]]))


def test_products_of_complex_numbers_may_be_any_infinity_but_no_number() -> None:
    x = np.full((2, 2), np.inf, np.complex64)
    assert has_any_infinity(graph_of("torch.matmul", x, x), x)
    its, mine = np.array([complex(np.inf, 0), 1 + 1j]), np.array([complex(np.nan, np.nan), 1 + 1j])
    compare("x", mine, its, any_infinity=True)
    with pytest.raises(DisagreementError):
        compare("x", mine, its)
    with pytest.raises(DisagreementError):
        compare("x", np.array([2.0, 1 + 1j]), its, any_infinity=True)
