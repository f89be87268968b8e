"""Products: what they refuse, and properties beyond the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import TensorSpec
from engine.errors import ShapeError
from engine.layers.linear.square import Determinant, MatrixExponential, MatrixPower
from tests.engine.layers.refusals import build, refusal, tensor

F32 = np.dtype(np.float32)

BROADCAST = ", expected each dimension equal or 1, counted from the last"


@pytest.mark.parametrize(
    ("type", "operands", "params", "message"),
    [
        (
            "torch.matmul",
            [tensor(2, 3), tensor(4, 5)],
            {},
            "matrices cannot be multiplied: found [2, 3] by [4, 5], expected [..., M, K] by [..., K, N]",
        ),
        (
            "torch.matmul",
            [tensor(), tensor(4, 5)],
            {},
            "matrices cannot be multiplied: found [] by [4, 5], expected [..., M, K] by [..., K, N]",
        ),
        (
            "torch.matmul",
            [tensor(2, 3, 4), tensor(3, 4, 5)],
            {},
            "shapes do not broadcast: found [2] and [3]" + BROADCAST,
        ),
        (
            "torch.mm",
            [tensor(2, 3, 4), tensor(4, 5)],
            {},
            "operands have the wrong ranks: found [2, 3, 4] and [4, 5], expected 2 and 2 axes",
        ),
        (
            "torch.mv",
            [tensor(2, 3), tensor(3, 1)],
            {},
            "operands have the wrong ranks: found [2, 3] and [3, 1], expected 2 and 1 axes",
        ),
        (
            "torch.addmm",
            [tensor(4, 5), tensor(2, 3), tensor(3, 5)],
            {},
            "shapes do not broadcast: found [4, 5] and [2, 5]" + BROADCAST,
        ),
        (
            "torch.addmm",
            [tensor(1, 2, 5), tensor(2, 3), tensor(3, 5)],
            {},
            "input does not broadcast to the product: found [1, 2, 5] and [2, 5]",
        ),
        (
            "aten::dot",
            [tensor(2, 3), tensor(3)],
            {},
            "operands have the wrong ranks: found [2, 3] and [3], expected 1 and 1 axes",
        ),
        (
            "aten::inner",
            [tensor(2, 3), tensor(4)],
            {},
            "last sizes differ: found [2, 3] and [4], expected [..., K] and [..., K]",
        ),
        (
            "aten::tensordot",
            [tensor(2, 3), tensor(4, 5)],
            {"dims_self": (1,), "dims_other": (0,)},
            "contracted sizes differ: found [2, 3] over [1], [4, 5] over [0]",
        ),
        (
            "aten::tensordot",
            [tensor(2, 3), tensor(3, 5)],
            {"dims_self": (1,), "dims_other": ()},
            "contracted axes do not pair up: found [1] and []",
        ),
        ("torch.cross", [tensor(2, 4), tensor(2, 4)], {}, "a cross product needs an axis of size 3: found [2, 4]"),
        ("torch.cross", [tensor(2, 4), tensor(2, 4)], {"dim": 1}, "a cross product needs 3 components: found 4"),
        ("torch.cross", [tensor(), tensor()], {}, "a cross product needs vectors: found 0-dim tensors"),
    ],
)
def test_what_does_not_fit_is_refused(type: str, operands: list[Any], params: dict[str, Any], message: str) -> None:
    assert refusal(type, *operands, **params) == message


def test_dynamic_dimensions_stay_dynamic() -> None:
    a, b = TensorSpec((None, 3, None), F32), TensorSpec((1, 4, None), F32)
    assert build("torch.matmul", 2).infer([a, b]) == TensorSpec((None, 3, None), F32)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_strides_do_not_matter(order: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).normal(size=(3, 3, 3)).astype(np.float32).transpose(order)[::-1]
    b = np.broadcast_to(np.arange(3, dtype=np.float32), (3, 3, 3))
    found = build("torch.matmul", 2).forward([a, b])
    np.testing.assert_allclose(found, np.einsum("bij,bjk->bik", a, b), rtol=1e-5, atol=1e-6)


def test_operations_are_counted_as_two_a_multiply_add() -> None:
    operands = [tensor(7, 2, 3), tensor(7, 3, 5)]
    layer = build("torch.bmm", 2)
    assert layer.flops(layer.infer(operands), operands) == 2 * 7 * 2 * 3 * 5


def test_batches_that_are_summed_over_must_be_alike() -> None:
    message = "batches differ: found [2, 3, 4] by [1, 4, 5]"
    assert refusal("aten::addbmm", tensor(3, 5), tensor(2, 3, 4), tensor(1, 4, 5)) == message


def test_a_cross_product_of_bools_is_refused() -> None:
    assert refusal("torch.cross", *[tensor(2, 3, dtype="bool")] * 2) == "a cross product needs numbers: found bool"


@pytest.mark.parametrize("ord", [1, -2, 2])
def test_a_norm_of_no_columns_is_refused(ord: int) -> None:
    message = refusal("aten::linalg_norm", tensor(3, 0), ord=ord, dim=(0, 1))
    assert message == "there are no elements to choose from: found [3, 0]"


def test_an_axis_is_summed_over_once() -> None:
    message = refusal("aten::tensordot", tensor(3, 3), tensor(3, 3), dims_self=(0, -2), dims_other=(0, 1))
    assert message == "a dim is given twice: found [0, 0]"


def test_functions_of_matrices_refuse_what_has_none() -> None:
    square, powers = "not square matrices: found [2, 3], expected [..., M, M]", "a matrix without an inverse"
    assert refusal("aten::linalg_matrix_exp", tensor(2, 3)) == square
    assert refusal("aten::linalg_matrix_power", tensor(2, 3), n=2) == square
    message = "not defined for this dtype: found int64, expected a floating dtype"
    assert refusal("aten::linalg_matrix_exp", tensor(2, 2, dtype="int64")) == message
    with pytest.raises(ShapeError, match=powers):
        MatrixPower(n=-1).forward(np.zeros((2, 2), np.float32))
    inverse = MatrixPower(n=-2).forward(np.array([[2, 0], [0, 4]], np.float32))
    np.testing.assert_array_equal(inverse, [[0.25, 0], [0, 0.0625]])


def test_a_stack_of_matrices_has_a_determinant_each() -> None:
    matrices = np.array([[[2, 0], [0, 4]], [[0, 1], [1, 0]]], np.float16)
    np.testing.assert_array_equal(Determinant().forward(matrices), np.array([8, -1], np.float16))
    assert refusal("aten::det", tensor(2, 3)) == "not square matrices: found [2, 3], expected [..., M, M]"


def test_the_exponential_of_what_is_not_finite_ends() -> None:
    assert np.isnan(MatrixExponential().forward(np.full((2, 2), np.inf, np.float32))).all()
    assert MatrixExponential().forward(np.array([[3e38, 0], [0, -3e38]], np.float32)).shape == (2, 2)
