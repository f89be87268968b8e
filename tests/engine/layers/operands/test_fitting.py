"""Values written into a tensor have to fit it; they are not broadcast unless PyTorch broadcasts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Annotations, registry
from engine.errors import ParameterError, ShapeError
from engine.layers import bind
from tests.engine.layers.refusals import build

TABLE = np.zeros((3, 4), np.float32)
PAIR = np.array([0, 2])
SOURCES = [(), (1,), (4,), (2,), (1, 4), (2, 1), (3, 4), (2, 4, 1), (1, 2, 4), (0, 4), (2, 0)]


@pytest.mark.parametrize(
    ("type", "more"),
    [
        ("torch.index_add", {}),
        ("aten::index_copy", {}),
        ("aten::index_reduce", {"reduce": "amax"}),
        ("torch.slice_scatter", {"start": 0, "end": 2, "step": 1}),
    ],
)
@pytest.mark.parametrize("shape", SOURCES)
def test_a_source_is_just_as_large_as_its_place(type: str, more: dict[str, Any], shape: tuple[int, ...]) -> None:
    operands = [TABLE, *([] if "slice" in type else [PAIR]), np.ones(shape, np.float32)]
    with pytest.raises(ShapeError):
        build(type, len(operands), dim=0, **more).forward(operands)


@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64"])
@pytest.mark.parametrize("type", ["torch.index_add", "aten::index_copy", "aten::put", "aten::masked_scatter"])
def test_a_source_is_of_the_inputs_kind(type: str, dtype: str) -> None:
    places = np.ones((3, 4), np.bool_) if "masked" in type else np.arange(3)
    more = {} if type in ("aten::put", "aten::masked_scatter") else {"dim": 0}
    source = np.ones(3 if type == "aten::put" else (3, 4), dtype)
    with pytest.raises(ShapeError, match="another kind of dtype"):
        build(type, 3, **more).forward([TABLE, places, source])


@pytest.mark.parametrize("dtype", ["int64", "float32", "complex64"])
@pytest.mark.parametrize("type", ["Tensor.masked_fill", "aten::masked_scatter", "torch.masked_select", "torch.where"])
def test_a_mask_is_of_bools(type: str, dtype: str) -> None:
    operands = [TABLE, np.ones((3, 4), dtype), TABLE][: 2 if "select" in type else 3]
    if type == "torch.where":
        operands[:2] = operands[1::-1]
    value = {"value": 1.0} if type == "Tensor.masked_fill" else {}
    with pytest.raises(ShapeError, match="a mask must be of bools"):
        build(type, len(operands) - len(value), **value).forward(operands[: len(operands) - len(value)])


@pytest.mark.parametrize("index", [(0, 4), (0,), (3, 0), (0, 0, 0)])
@pytest.mark.parametrize("source", [(3, 4), (1,), (0, 2)])
def test_nothing_is_scattered_to_no_place_whatever_its_shape(index: tuple[int, ...], source: tuple[int, ...]) -> None:
    layer = build("torch.scatter_add", 3, dim=0)
    result = layer.forward([TABLE, np.zeros(index, np.int64), np.ones(source, np.float32)])
    np.testing.assert_array_equal(result, TABLE)


@pytest.mark.parametrize("value", [(1.0, 2.0), (), "x", None])
@pytest.mark.parametrize("type", ["Tensor.fill", "Tensor.masked_fill", "torch.full_like", "torch.addcmul"])
def test_a_literal_in_place_of_a_tensor_is_one_number(type: str, value: object) -> None:
    name = "fill_value" if type == "torch.full_like" else "value"
    count = {"Tensor.masked_fill": 2, "torch.addcmul": 3}.get(type, 1)
    with pytest.raises(ParameterError):
        build(type, count, **{name: value})


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), float("inf"), "x"])
@pytest.mark.parametrize("type", ["nn.Dropout", "F.dropout2d", "nn.AlphaDropout"])
def test_a_rate_of_dropout_lies_between_0_and_1(type: str, p: object) -> None:
    with pytest.raises(ParameterError):
        build(type, 1, p=p)


@pytest.mark.parametrize("limits", [(-np.inf, 1.0), (0.0, np.nan), (0.0, np.inf), (2.0, 1.0)])
def test_a_histogram_has_a_finite_range(limits: tuple[float, float]) -> None:
    with pytest.raises(ParameterError, match="invalid bins"):
        build("aten::histc", 1, min=limits[0], max=limits[1])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_histogram_of_values_without_a_range_is_refused_as_the_callers(value: float) -> None:
    with pytest.raises(ShapeError, match="not finite"):
        build("aten::histc", 1).forward([np.array([0.0, value])])


@pytest.mark.parametrize("divisor", [0, np.zeros((), np.int64)])
def test_what_only_the_values_of_a_run_make_impossible_is_refused_as_the_callers(divisor: object) -> None:
    with pytest.raises(ShapeError):
        bind(
            registry["pnnx.Expression"],
            n_inputs=2,
            params={"expr": "floor_divide(@0,@1)"},
            attributes={},
            annotations=Annotations(inputs=(None, None), outputs=(None,)),
        ).forward([np.ones(2, np.int64), divisor])


@pytest.mark.parametrize("dim", [0.5, float("nan"), "x", 2**70], ids=repr)
def test_a_parameter_that_comes_as_an_operand_is_refused_as_the_callers(dim: object) -> None:
    with pytest.raises(ShapeError):
        build("torch.unsqueeze", 2).forward([TABLE, dim])


@pytest.mark.parametrize(
    ("type", "params"),
    [
        ("F.leaky_relu", {"negative_slope": 1e308}),
        ("nn.RReLU", {"lower": -1e308, "upper": -1e307}),
        ("nn.ELU", {"alpha": 1e308}),
        ("nn.CELU", {"alpha": 1e308}),
    ],
)
def test_a_slope_beyond_float32_leaves_what_is_not_bent(type: str, params: dict[str, float]) -> None:
    x = np.array([0.5, 2.0], np.float32)
    np.testing.assert_array_equal(build(type, 1, **params).forward([x]), x)
