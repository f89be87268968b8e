"""Every layer against PyTorch's recorded answers, in file form: converted pair in, outputs compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine.tensor import TensorSpec
from tests.engine.layers.samples import Sample, all_samples

SAMPLES = all_samples()
every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)


def load(sample: Sample, folder: Path) -> engine.RuntimeGraph:
    return engine.load(*sample.extract(folder))


def assert_close(found: list[np.ndarray], expected: list[np.ndarray], sample: Sample) -> None:
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]
    for got, want in zip(found, expected, strict=True):
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=sample.rtol, atol=sample.atol)


@every
def test_reference_gives_pytorchs_answer(sample: Sample, tmp_path: Path) -> None:
    session = engine.Session(load(sample, tmp_path), backend="reference")
    for each in sample.sets:
        assert_close(session.run(each.inputs), each.outputs, sample)


@every
def test_inference_predicts_the_real_shape_and_dtype(sample: Sample, tmp_path: Path) -> None:
    graph = load(sample, tmp_path)
    outputs = engine.Session(graph, backend="reference").run(sample.sets[0].inputs)
    for port, output in zip(graph.outputs, outputs, strict=True):
        assert port.spec is None or port.spec.dtype == output.dtype
        assert port.spec is None or len(port.spec.shape) == output.ndim
        dims = port.spec.shape if port.spec is not None else ()
        assert all(dim is None or dim == size for dim, size in zip(dims, output.shape, strict=False))
    assert graph.warnings == ()
    for number in range(len(graph.inputs)):
        _check_known(graph, sample, number)


def _check_known(graph: engine.RuntimeGraph, sample: Sample, number: int) -> None:
    """Where only the elements of one input are known, what is known of an output is what a run gives."""
    given = enumerate(sample.sets[0].inputs)
    specs = [TensorSpec(each.shape, each.dtype, each if k == number else None) for k, each in given]
    try:
        values = graph.infer(specs)
    except engine.EngineError:  # what is given may decide that the others do not fit
        return
    for port, output in zip(graph.outputs, sample.sets[0].outputs, strict=True):
        spec = values.get(port.operand)
        if isinstance(spec, TensorSpec) and spec.value is not None:
            np.testing.assert_allclose(spec.value, output, rtol=sample.rtol, atol=sample.atol)


@every
def test_strided_read_only_inputs_give_the_same_answer(sample: Sample, tmp_path: Path) -> None:
    session = engine.Session(load(sample, tmp_path), backend="reference")
    inputs = [_strided(array) for array in sample.sets[0].inputs]
    assert_close(session.run(inputs), sample.sets[0].outputs, sample)


def _strided(array: np.ndarray) -> np.ndarray:
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    view = wide[..., 0]
    view.flags.writeable = False
    return view
