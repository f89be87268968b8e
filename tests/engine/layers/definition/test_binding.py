"""Arguments are resolved by $name, attribute, parameter, position, default, in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typing_extensions import TypeAliasType

from engine import Annotations, Layer, ParameterError
from engine.layers import BoundLayer, Signature, bind
from engine.layers.definition.parameter import is_tensor_hint
from engine.tensor import UNKNOWN, Array, Dim, TensorSpec

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)
F32 = np.dtype(np.float32)


class Affine(Layer):
    """input * weight + bias, summed along dim where given."""

    dim: int | None = None
    sizes: tuple[Dim, ...] = ()

    def infer(self, input: TensorSpec, weight: object, bias: object = 0) -> TensorSpec:
        return TensorSpec(self.sizes or input.shape, input.dtype)

    def forward(self, input: Array, weight: Any, bias: Any = 0) -> Array:
        result: Array = input * weight + bias
        return result if self.dim is None else result.sum(axis=self.dim)


class Count(Layer):
    """The number of operands times the scale, plus the keyword's value."""

    scale: int = 1

    def forward(self, *tensors: Array, offset: Any = 0) -> int:
        return len(tensors) * self.scale + int(offset)


def bound(type: str = "torch.affine", layer: type[Layer] = Affine, **given: Any) -> BoundLayer:
    labels = given.pop("labels", ())
    n_inputs = given.pop("n_inputs", 1)
    attributes = given.pop("attributes", {})
    signature = Signature(type=type, layer=layer, **given.pop("signature", {}))
    annotations = Annotations(labels=labels or (None,) * n_inputs)
    return bind(signature, n_inputs=n_inputs, params=given, attributes=attributes, annotations=annotations)


def test_labelled_operands_go_by_name_whatever_their_order() -> None:
    layer = bound(n_inputs=2, labels=("weight", "input"))
    np.testing.assert_array_equal(layer.forward([2, X]), X * 2)


def test_unlabelled_operands_go_by_position() -> None:
    np.testing.assert_array_equal(bound(n_inputs=3).forward([X, 2, 1]), X * 2 + 1)


def test_one_operand_twice_serves_two_arguments() -> None:
    layer = bound(n_inputs=2, labels=("input", "weight"))
    np.testing.assert_array_equal(layer.forward([X, X]), X * X)


def test_a_parameter_may_stand_for_an_operand() -> None:
    np.testing.assert_array_equal(bound(weight=3, labels=("input",)).forward([X]), X * 3)


def test_attribute_beats_parameter_of_the_same_name() -> None:
    weight = np.full(3, 4, F32)
    layer = bound("nn.Affine", attributes={"weight": weight}, signature={"flags": {"bias": ("bias",)}}, bias=False)
    np.testing.assert_array_equal(layer.forward([X]), X * 4)


def test_a_field_may_arrive_as_an_operand_and_is_read_in_every_run() -> None:
    layer = bound(n_inputs=2, labels=("input", "dim"), weight=1)
    assert [layer.forward([X, 0]).shape, layer.forward([X, np.array(1)]).shape] == [(3,), (2,)]


def test_a_stale_label_on_a_methods_first_operand_does_not_matter() -> None:
    layer = bound("Tensor.affine", labels=("mask",), weight=2)
    np.testing.assert_array_equal(layer.forward([X]), X * 2)


def test_labels_of_modules_are_ignored() -> None:
    layer = bound("nn.Affine", n_inputs=2, labels=("weight", "input"))
    np.testing.assert_array_equal(layer.forward([X, 3]), X * 3)


def test_variadic_layers_take_all_unnamed_operands() -> None:
    assert bound("torch.count", Count, n_inputs=3, scale=2).forward([X, X, X]) == 6


def test_variadic_layers_take_named_operands_by_name() -> None:
    assert bound("torch.count", Count, n_inputs=2, labels=(None, "offset")).forward([X, 5]) == 6


def test_a_parameter_given_as_an_operand_is_not_among_a_variadic_layers_tensors() -> None:
    layer = bound("torch.count", Count, n_inputs=3, labels=(None, None, "scale"))
    assert layer.forward([X, X, 5]) == 10


def test_inference_passes_over_values_only_a_run_can_tell() -> None:
    layer = bound(n_inputs=2, labels=("input", "dim"), weight=1)
    assert layer.infer([TensorSpec((2, 3), F32), UNKNOWN]) is UNKNOWN
    assert layer.infer([TensorSpec((2, 3), F32), TensorSpec((), np.dtype(np.int64))]) is UNKNOWN


def test_an_unknown_size_is_a_dynamic_dimension() -> None:
    layer = bound(n_inputs=2, labels=("input", "sizes"), weight=1)
    assert layer.infer([TensorSpec((2, 3), F32), [4, UNKNOWN]]) == TensorSpec((4, None), F32)


@pytest.mark.parametrize(
    ("sizes", "shape"), [(("int(8)", 3), (8, 3)), (("int(7.9)", "int(2)"), (7, 2)), (("int(0)", 4), (0, 4))]
)
def test_a_size_that_the_model_has_rounded_is_a_number(sizes: tuple[object, ...], shape: tuple[int, ...]) -> None:
    layer = bound(weight=1, sizes=sizes)
    assert layer.infer([TensorSpec((2, 3), F32)]) == TensorSpec(shape, F32)


@pytest.mark.parametrize("text", ["int(8", "int()", "int(1e3)", "int(8)8", "float(8)", f"int({'9' * 16})"])
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ParameterError, match="wrong kind of value"):
        bound(weight=1, sizes=(text, 3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "operand 'weight' is missing: found 1 operands"),
        ({"n_inputs": 6}, "too many operands: found 6, expected at most 5"),
        ({"weight": 1, "slope": 2}, "unknown parameter 'slope', expected bias, dim, input, sizes, weight"),
        ({"weight": 1, "precision": "f16"}, "unknown precision: found 'f16', expected bf16"),
        ({"weight": 1, "dim": "x"}, "parameter 'dim': wrong kind of value: found 'x', expected int or None"),
        ({"weight": 1, "dim": 1.5}, "parameter 'dim': wrong kind of value: found 1.5, expected int or None"),
        ({"weight": 1, "sizes": (1, "a")}, "found [1, 'a'], expected list of int or None"),
        ({"attributes": {"scales": X}}, "unknown attribute 'scales', expected input, weight, bias"),
        ({"weight": 1, "flag": True, "signature": {"flags": {"flag": ("bias",)}}}, "attribute 'bias' is missing"),
    ],
)
def test_arguments_that_do_not_fit_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        bound(**given)
    assert message in str(caught.value)


def test_a_type_alias_of_an_array_is_a_tensor() -> None:
    alias = TypeAliasType("alias", np.ndarray)  # like NDArray since numpy 2.5, which needs Python 3.12
    assert is_tensor_hint(alias) and not is_tensor_hint(TypeAliasType("number", int))
