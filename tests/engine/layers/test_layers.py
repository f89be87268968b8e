"""Every recorded sample in file form, read once: all that is checked of it, in one test."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.graph import execute
from engine.passes import optimise
from engine.tensor import TensorSpec
from tests.checking import run_all
from tests.engine.compiler.test_samples import Machine
from tests.engine.layers.samples import Sample, all_samples, assert_close
from tests.engine.passes.applying import FOLDED, assert_answers, assert_same_ports, runnable


def the_reference_gives_pytorchs_answer(graph: engine.RuntimeGraph, sample: Sample) -> None:
    session = engine.Session(graph, backend="reference")
    for each in sample.sets:
        assert_close(session.run(each.inputs), each.outputs, sample)


def inference_predicts_the_real_shape_and_dtype(graph: engine.RuntimeGraph, sample: Sample) -> None:
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
    """Check that outputs inferred from the elements of one input equal those of a run."""
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


def strided_read_only_inputs_give_the_same_answer(graph: engine.RuntimeGraph, sample: Sample) -> None:
    session = engine.Session(graph, backend="reference")
    inputs = [_strided(array) for array in sample.sets[0].inputs]
    assert_close(session.run(inputs), sample.sets[0].outputs, sample)


def _strided(array: np.ndarray) -> np.ndarray:
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    view = wide[..., 0]
    view.flags.writeable = False
    return view


def all_passes_together_keep_the_answer(graph: engine.RuntimeGraph, sample: Sample) -> None:
    if sample.path.stem == "randomness":
        return
    optimised, _ = optimise(graph)
    assert_same_ports(graph, optimised)
    for each in sample.sets:
        if runnable(graph, each.inputs):
            assert_answers(execute(optimised.plan, each.inputs), execute(graph.plan, each.inputs), FOLDED)


def machine_code_gives_pytorchs_answer(graph: engine.RuntimeGraph, sample: Sample) -> None:
    machine = Machine(graph)
    for each in sample.sets:
        assert_close(machine.run(each.inputs), each.outputs, sample)


# Samples whose ONNX file computes something else: the first NaN of a window, numbers that bfloat16 rounds first, and
# scale factors, which are float32 in ONNX.
NOT_AS_WRITTEN = {
    "activation-functions_bfloat16",
    "adaptive_pool-F_adaptive_max_pool2d_nan_to_1",
    "adaptive_pool-F_adaptive_max_pool2d_nan_to_3",
    "adaptive_pool-F_adaptive_max_pool2d_nan_to_4",
    "comparison-compare_bfloat16",
    "resample-F_upsample_dynamic_scale",
    "resample-nn_upsample_bicubic",
}


def an_onnx_file_of_it_gives_pytorchs_answer(graph: engine.RuntimeGraph, sample: Sample) -> None:
    """Write the graph as an ONNX file and read that; operators without a counterpart are refused with a typed error."""
    if sample.path.stem == "randomness" or sample.id in NOT_AS_WRITTEN:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            engine.save_onnx(graph, path)
        except engine.UnsupportedOperatorError:
            assert not path.exists()
            return
        session = engine.Session(engine.load(path), backend="reference")
    for each in sample.sets:
        if _are_declared(graph, each.inputs):
            assert_close(session.run(each.inputs), each.outputs, sample)


def _are_declared(graph: engine.RuntimeGraph, inputs: list[np.ndarray]) -> bool:
    """Return whether inputs have the sizes that the file declares; other sizes of a batch are the engine's own."""
    shapes = [port.spec.shape for port in graph.inputs if port.spec is not None]
    pairs = [pair for shape, x in zip(shapes, inputs, strict=True) for pair in zip(shape, x.shape, strict=True)]
    return all(dim in (None, size) for dim, size in pairs)


CHECKS = (
    the_reference_gives_pytorchs_answer,
    inference_predicts_the_real_shape_and_dtype,
    strided_read_only_inputs_give_the_same_answer,
    all_passes_together_keep_the_answer,
    machine_code_gives_pytorchs_answer,
    an_onnx_file_of_it_gives_pytorchs_answer,
)


@pytest.mark.parametrize("sample", all_samples(), ids=lambda sample: sample.id)
def test_every_check_of_a_sample_holds(sample: Sample, tmp_path: Path) -> None:
    run_all(CHECKS, engine.load(*sample.extract(tmp_path)), sample)
