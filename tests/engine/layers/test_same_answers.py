"""A file gives the same answers whatever is known of it before a run: sizes, inputs; and in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import engine
from engine.passes.constant_folding import constant_folding
from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import TensorSpec
from tests.engine.compiler.doubling import doubled, doubles
from tests.engine.layers.samples import Sample, all_samples, assert_close
from tests.nightly import IS_NIGHTLY

EVERY = 60
NAMED = (
    *("quantise-quantised_classifier", "onnx_nodes-reduce_sum_empty_axes_input_noop_example_constants"),
    *("recurrent-LSTM_order_h", "resample-nn_upsample_bilinear"),
)
SAMPLES = [each for each in all_samples() if each.path.stem != "randomness"]
TAKEN = SAMPLES if IS_NIGHTLY else [s for k, s in enumerate(SAMPLES) if k % EVERY == 0 or s.id in NAMED]
BACKENDS: tuple[Literal["reference", "auto"], ...] = ("reference", "auto") if IS_NIGHTLY else ("reference",)

# Files whose meaning hangs on sizes, for the converter leaves out which operand or mask is which.
NEEDS_SIZES = (
    *("attention-mha_mask_as_wide_as_a_sequence", "join-cat_ignores_legacy_empty"),
    "onnx_nodes-lstm_peepholes",
)
# Values half way between two elements or remainders, or at the ends of float32: they are others in float64.
ON_EDGES = (
    "grid-f_grid_sample_bicubic", "grid-f_grid_sample_nearest", "mathematics-nan_to_num", "spellings-nan_to_num",
    "mathematics-true_divide_remainder", "norm-rms_norm_of_almost_nothing",
)  # fmt: skip

every = pytest.mark.parametrize("sample", TAKEN, ids=lambda sample: sample.id)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def built(source: Graph) -> engine.RuntimeGraph:
    graph = engine.RuntimeGraph.from_source(source)
    graph.build()
    return graph


def numbers(value: Any) -> Iterable[int]:
    """The integers among parameters."""
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, int):
        yield value


def opened(source: Graph, inputs: Iterable[str]) -> Graph:
    """A file of dynamic sizes, as a converter that has seen two shapes writes it, unless a size is repeated."""
    specs = [source.annotations[name] for name in inputs if name in source.annotations]
    kept = {1, *numbers([list(op.params.values()) for op in source.operators])}
    kept.update(size for op in source.operators for each in op.attributes.values() for size in each.shape)
    sizes = {size for spec in specs for size in spec.shape} - kept

    def without(spec: TensorSpec) -> TensorSpec:
        return TensorSpec(tuple(None if size in sizes else size for size in spec.shape), spec.dtype)

    return replace(source, annotations={name: without(spec) for name, spec in source.annotations.items()})


def with_constants(source: Graph, values: dict[str, np.ndarray]) -> Graph:
    """A file whose inputs are stored in it."""

    def stored(op: Operator) -> Operator:
        if op.type != "pnnx.Input":
            return op
        data = values[op.outputs[0]]
        return replace(op, type="pnnx.Attribute", attributes={"data": Attribute(data.shape, data.dtype, data)})

    return replace(source, operators=[stored(op) for op in source.operators])


def held(sample: Sample, found: list[np.ndarray]) -> None:
    assert_close(found, sample.sets[0].outputs, sample)


def ran(graph: engine.RuntimeGraph, inputs: list[np.ndarray], backend: Any) -> list[np.ndarray]:
    session = engine.Session(graph, backend=backend, cache=None)
    outputs = session.run(inputs)
    session.close()
    return outputs


@every
@each_backend
def test_dynamic_sizes(sample: Sample, backend: Any, tmp_path: Path) -> None:
    graph, inputs = engine.load(*sample.extract(tmp_path)), sample.sets[0].inputs
    source = opened(graph.source, [port.operand for port in graph.inputs])
    try:
        found = ran(built(source), inputs, backend)
    except engine.EngineError:  # refused, but never another answer
        assert sample.id in NEEDS_SIZES
    else:
        held(sample, found)


@every
@each_backend
@pytest.mark.parametrize("computed", [built, lambda source: built(constant_folding(built(source)))],
                         ids=["stored", "folded"])  # fmt: skip
def test_constant_inputs(
    sample: Sample, backend: Any, computed: Callable[[Graph], engine.RuntimeGraph], tmp_path: Path
) -> None:
    graph = engine.load(*sample.extract(tmp_path))
    values = dict(zip([port.operand for port in graph.inputs], sample.sets[0].inputs, strict=True))
    held(sample, ran(computed(with_constants(graph.source, values)), [], backend))


@every
@each_backend
def test_float64(sample: Sample, backend: Any, tmp_path: Path) -> None:
    graph, inputs = engine.load(*sample.extract(tmp_path)), doubles(sample.sets[0].inputs)
    found, outputs = ran(doubled(graph.source), inputs, backend), sample.sets[0].outputs
    wide = {"float32": np.float64, "complex64": np.complex128}
    for mine, theirs in zip(found, outputs, strict=True):
        assert mine.dtype in (theirs.dtype, wide.get(theirs.dtype.name))
    if not sample.id.startswith(ON_EDGES):
        with np.errstate(over="ignore"):
            held(sample, [mine.astype(theirs.dtype) for mine, theirs in zip(found, outputs, strict=True)])
