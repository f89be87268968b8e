"""Stored tensors that contradict their operator: every recorded model with one attribute or parameter changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import EngineError, Mismatch, ParameterError, RuntimeGraph, Session, ShapeError, TensorSpec, pnnx
from tests.engine.layers.refusals import build, tensor
from tests.engine.layers.samples import Sample, all_samples

Change = Callable[[pnnx.Operator], Iterator[tuple[str, pnnx.Operator]]]

# ONNX operators store nothing of their own: their weights are constants beside them, of which a few cases say enough.
SAMPLES = [sample for sample in all_samples() if " @" in sample.param and sample.path.stem != "onnx_nodes"]
every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
# Parameters that only repeat what the attributes' shapes say.
REPEATED = {
    "in_features", "out_features", "in_channels", "out_channels", "kernel_size", "num_features", "num_channels",
    "num_parameters", "num_embeddings", "embedding_dim", "normalized_shape", "input_size", "hidden_size", "num_layers",
    "proj_size", "embed_dim", "kdim", "vdim",
}  # fmt: skip


def reshaped(data: np.ndarray) -> Iterator[np.ndarray]:
    """The array in other shapes: a row short, with one more dimension, transposed."""
    if data.ndim and data.shape[0]:
        yield data[1:].copy()
    yield data[..., None].copy()
    if data.T.shape != data.shape:
        yield data.T.copy()


def with_odd_attribute(op: pnnx.Operator) -> Iterator[tuple[str, pnnx.Operator]]:
    """(name, the operator with that attribute reshaped or left out)."""
    for key, attribute in op.attributes.items():
        others = {other: value for other, value in op.attributes.items() if other != key}
        yield key, replace(op, attributes=others)
        for data in reshaped(attribute.data):
            odd = pnnx.Attribute(data.shape, attribute.dtype, data, attribute.code)
            yield key, replace(op, attributes={**others, key: odd})


def with_odd_parameter(op: pnnx.Operator) -> Iterator[tuple[str, pnnx.Operator]]:
    """(name, the operator with that parameter one larger) for parameters that repeat sizes of attributes."""
    for key in REPEATED & op.params.keys() if op.attributes else ():
        value = op.params[key]
        larger = (value[0] + 1, *value[1:]) if isinstance(value, tuple) else value + 1
        yield key, replace(op, params={**op.params, key: larger})


def variants(source: pnnx.Graph, change: Change) -> Iterator[tuple[str, pnnx.Operator, pnnx.Graph]]:
    """(what is odd, the operator, the graph with it)."""
    for place, op in enumerate(source.operators):
        for name, variant in change(op):
            operators = [*source.operators[:place], variant, *source.operators[place + 1 :]]
            yield name, op, replace(source, operators=operators)


def refusal(source: pnnx.Graph, sample: Sample) -> EngineError | Mismatch | None:
    """Return the error of a graph's build or run, else its first warning."""
    graph = RuntimeGraph.from_source(source)
    try:
        graph.build()
        Session(graph, backend="reference").run(sample.sets[0].inputs)
    except EngineError as error:
        return error
    return next(iter(graph.warnings), None)


@every
def test_an_attribute_that_contradicts_its_operator_is_refused_by_name(sample: Sample, tmp_path: Path) -> None:
    source = pnnx.read(*sample.extract(tmp_path))
    for name, op, variant in chain(variants(source, with_odd_attribute), variants(source, with_odd_parameter)):
        problem = refusal(variant, sample)
        assert isinstance(problem, (ParameterError, ShapeError)) or op.type == "pnnx.Attribute", (name, op, problem)
        assert op.type == "pnnx.Attribute" or f"{op.name} ({op.type}): " in str(problem), (name, op, problem)


@every
def test_a_constant_of_another_shape_is_refused_or_reported(sample: Sample, tmp_path: Path) -> None:
    for name, op, variant in variants(pnnx.read(*sample.extract(tmp_path)), with_odd_attribute):
        assert isinstance(refusal(variant, sample), (ParameterError, ShapeError, Mismatch)), (name, op)


@pytest.mark.parametrize(
    ("type", "shapes", "params", "message"),
    [
        (
            "nn.Linear",
            {"weight": tensor(2, 4), "bias": tensor(2)},
            {"in_features": 3, "out_features": 2, "bias": True},
            "attribute 'weight' does not fit the parameters: found [2, 4], expected [2, 3], that is "
            "[out_features, in_features]",
        ),
        (
            "nn.LayerNorm",
            {"weight": tensor(3, 4), "bias": tensor(4)},
            {"normalized_shape": (3, 4), "elementwise_affine": True},
            "attribute 'bias' does not fit the parameters: found [4], expected [3, 4], that is [*normalized_shape]",
        ),
        (
            "nn.BatchNorm2d",
            {"running_mean": tensor(3), "running_var": tensor(3), "weight": tensor(3)},
            {"num_features": 3, "affine": True},
            "attribute 'bias' is missing: found affine=True without it",
        ),
        ("nn.PReLU", {"weight": tensor(3, 1)}, {}, "attribute 'weight' does not fit the parameters: found [3, 1], "
         "expected [?], that is [num_parameters]"),
        ("nn.Embedding", {"weight": tensor(3, 2)}, {"num_embeddings": "many"}, "parameter 'num_embeddings': wrong kind "
         "of value: found 'many', expected int"),
    ],
)  # fmt: skip
def test_the_message_says_what_was_found_and_what_the_parameters_say(
    type: str, shapes: dict[str, TensorSpec], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        build(type, 1, shapes, **params)
    assert str(caught.value) == message


def test_sizes_that_the_file_does_not_repeat_are_open() -> None:
    shapes = {"weight": tensor(2, 3), "bias": tensor(2)}
    assert build("nn.Linear", 1, shapes).infer([tensor(5, 3)]) == tensor(5, 2)
    assert build("nn.LayerNorm", 1, {"weight": tensor(3)}, normalized_shape=3).infer([tensor(2, 3)]) == tensor(2, 3)
