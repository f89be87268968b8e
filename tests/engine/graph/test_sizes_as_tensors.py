"""Sizes become tensors and tensors sizes: every such value runs, and is known before a run as far as it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest

import engine
from engine.layers import registry
from engine.layers.definition.binding import bind
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.known import is_repeatable
from engine.layers.definition.layer import Annotations
from engine.layers.definition.signature import REQUIRED
from engine.tensor import TensorSpec, scalar_tensor
from tests.engine.graph.build import F32, INPUT, built, op


def reshaped(*operators: engine.pnnx.Operator) -> engine.RuntimeGraph:
    """A graph that reshapes its input to [n, 1, -1]; operators make ``v`` from its first size ``n``."""
    return built(
        INPUT,
        op("pnnx.Expression", "size", "0", "n", expr="size(@0,0)"),
        *operators,
        op("pnnx.Expression", "list", "v", "shape", expr="[@0,1,-1]"),
        op("Tensor.reshape", "reshape", "0 shape", "9"),
        op("nn.ReLU", "relu", "9", "10"),
        op("pnnx.Output", "out", "10"),
        _0=(None, 3, None),
    )


CHAINS = {
    "unsqueeze": [op("torch.unsqueeze", "u", "n", "v", dim=0)],
    "unsqueeze twice": [op("torch.unsqueeze", "u", "n", "u", dim=0), op("torch.unsqueeze", "w", "u", "v", dim=-1)],
    "to and back": [
        op("torch.unsqueeze", "u", "n", "u", dim=0),
        op("Tensor.to", "f", "u", "f", dtype="torch.float"),
        op("torch.squeeze", "s", "f", "s", dim=0),
        op("Tensor.to", "t", "s", "v", dtype="torch.long"),
    ],
    "cat and select": [op("torch.cat", "c", "n n", "c", dim=0), op("Tensor.select", "s", "c", "v", dim=0, index=1)],
    "stack and slice": [
        op("torch.stack", "c", "n n", "c", dim=0),
        op("Tensor.slice", "s", "c", "v", dim=0, start=0, end=1, step=1),
    ],
    "list and stack": [op("prim::ListConstruct", "l", "n", "l"), op("torch.stack", "c", "l", "v", dim=0)],
    "clamp": [op("torch.clamp", "c", "n", "v", min=1, max=1000)],
    "sum": [op("torch.sum", "c", "n", "v")],
    "reshape": [op("Tensor.reshape", "c", "n", "v", shape=(1,))],
    "expand": [op("Tensor.expand", "c", "n", "v", sizes=(1,))],
    "maximum": [op("torch.maximum", "c", "n n", "v")],
    "numpy's item": [op("torch.unsqueeze", "u", "n", "u", dim=0), op("aten::item", "i", "u", "v")],
    "arithmetic": [
        op("torch.unsqueeze", "u", "n", "u", dim=0),
        op("pnnx.Expression", "e", "u n", "v", expr="floor_divide(mul(@0,@1),@1)"),
    ],
}


@pytest.mark.parametrize("operators", CHAINS.values(), ids=CHAINS)
def test_a_size_that_went_through_tensors_is_a_size(operators: list[engine.pnnx.Operator]) -> None:
    graph = reshaped(*operators)
    session = engine.Session(graph, backend="reference")
    for shape in ((2, 3, 8), (1, 3, 5), (7, 3, 2)):
        x = np.random.default_rng(0).standard_normal(shape).astype(F32)
        (y,) = session.run(x)
        np.testing.assert_array_equal(y, np.maximum(x.reshape(shape[0], 1, -1), 0))
        assert graph.infer([TensorSpec(shape, F32)])["10"] == TensorSpec((shape[0], 1, 3 * shape[2]), F32)


@pytest.mark.parametrize("operators", CHAINS.values(), ids=CHAINS)
def test_what_follows_such_a_size_is_compiled(operators: list[engine.pnnx.Operator]) -> None:
    session = engine.Session(reshaped(*operators), backend="compiled", cache=None)
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(F32)
    np.testing.assert_array_equal(session.run(x)[0], np.maximum(x.reshape(2, 1, -1), 0))
    kernels = {row["name"]: row.get("kernel") for row in session.describe()["operators"]}
    assert kernels["reshape"] != "reference"
    assert kernels["relu"] != "reference"


ANNOTATIONS = Annotations(inputs=(None,), outputs=(None,), labels=(None,))


def unary() -> Iterator[tuple[str, BoundLayer]]:
    """Every registered operator that needs one tensor and nothing else."""
    for type in sorted(registry):
        signature = registry[type]
        required = [name for name, default in signature.operands.items() if default is REQUIRED]
        if len(required) == 1 and required[0] in signature.tensors:
            with suppress(engine.EngineError):
                yield type, bind(signature, n_inputs=1, params={}, attributes={}, annotations=ANNOTATIONS)


def outcome(call: Callable[[list[object]], object], value: object) -> object:
    try:
        return call([value])
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("number", [5, 2.5, True], ids=repr)
def test_an_operator_takes_a_number_as_the_tensor_that_pytorch_has_for_it(number: float) -> None:
    """Compare all repeatable unary layers for a number and for the equal 0-dim tensor."""
    tried = 0
    for type, layer in unary():
        if is_repeatable(layer.layer):
            tensor = scalar_tensor(number)
            np.testing.assert_equal(outcome(layer.forward, number), outcome(layer.forward, tensor), err_msg=type)
            spec = TensorSpec((), tensor.dtype, tensor)
            assert outcome(layer.infer, number) == outcome(layer.infer, spec), type
            tried += 1
    assert tried > 100


def test_a_layers_attributes_are_never_followed_when_they_are_large() -> None:
    big = np.arange(1000)
    graph = built(op("pnnx.Attribute", "a", "", "0", data=big), op("pnnx.Output", "out", "0"))
    spec = graph.operands["0"].value
    assert isinstance(spec, TensorSpec)
    assert spec.value is None


def test_what_is_random_is_not_known() -> None:
    graph = built(op("torch.randn", "r", "", "0", size=(2,)), op("pnnx.Output", "out", "0"))
    spec = graph.operands["0"].value
    assert isinstance(spec, TensorSpec)
    assert spec.value is None
