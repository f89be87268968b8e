"""Written files in onnxruntime: the cases of the corpus give PyTorch's answers, quantised layers ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.onnx_writing import to_model
from tests.corpus_score import DEFAULT, load_compare
from tests.engine.compiler.random_maps import EXACT, SMOOTH
from tests.engine.compiler.random_operators import KERNELS
from tests.engine.compiler.test_random_graphs import grow, hold
from tests.engine.graph.build import INPUT, built, op
from tests.nightly import IS_NIGHTLY

onnxruntime = pytest.importorskip("onnxruntime")
CASES = sorted((DEFAULT / "cases").iterdir()) if DEFAULT.is_dir() else []
# Cases with complex numbers, a function that ONNX lacks, or a projected LSTM.
REFUSED = {
    *("ir_complex", "nn_LSTM", "torch_complex", "torch_fft_hfft", "torch_fft_ifft", "torch_fft_ihfft"),
    *("torch_fft_ihfft2", "torch_fft_irfft", "torch_fft_irfft2", "torch_fft_rfft2", "torch_imag", "torch_lgamma"),
    *("torch_view_as_complex", "torchaudio_InverseSpectrogram"),
}


def answers(graph: engine.RuntimeGraph, inputs: list[Any]) -> list[Any]:
    """Return what onnxruntime computes from a written graph."""
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    used = {each.name for each in session.get_inputs()}
    pairs = zip(graph.inputs, inputs, strict=True)
    given = {port.name: x if port.spec is None else x.astype(port.spec.dtype) for port, x in pairs if port.name in used}
    return list(session.run([port.name for port in graph.outputs], given))


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_case_gives_pytorchs_answer(folder: Path) -> None:
    graph = engine.load(folder / "model.pnnx.param")
    if folder.name in REFUSED:
        with pytest.raises(engine.UnsupportedOperatorError):
            to_model(graph)
        return
    compare, facts = load_compare(DEFAULT), json.loads((folder / "case.json").read_text())
    for k in range(facts["n_sets"]):
        inputs, expected = compare.load_set(str(folder), k)
        tolerances = [each["tol"] for each in facts["sets"][k]["outputs"]]
        assert compare.compare_all(answers(graph, inputs), expected, tolerances)[0]


def test_the_codes_of_a_quantised_layer_are_ours() -> None:
    from tests.engine.onnx_files.test_writing import quantised_linear

    graph = quantised_linear()
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    ours = engine.Session(graph, backend="reference").run([x])
    np.testing.assert_allclose(answers(graph, [x])[0], ours[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type", ["torch.cummax", "torch.cummin"])
@pytest.mark.parametrize(("shape", "dim"), [((2, 3, 4), 1), ((5,), 0), ((87, 4), -1), ((1, 5, 1, 7), 2)])
def test_running_extremes_keep_their_positions(type: str, shape: tuple[int, ...], dim: int) -> None:
    x = np.random.default_rng(1).integers(-3, 3, shape).astype(np.float32)
    graph = built(
        INPUT,
        op(type, "c", "0", "1 2", dim=dim),
        op("pnnx.Output", "out0", "1"),
        op("pnnx.Output", "out1", "2"),
        _0=shape,
    )
    for mine, theirs in zip(answers(graph, [x]), engine.Session(graph, backend="reference").run([x]), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("first", range(0, 480 if IS_NIGHTLY else 24, 6))
def test_random_graphs_give_our_answers(first: int) -> None:
    for seed in range(first, first + 6):
        growing, outputs = grow(seed, [KERNELS, EXACT, SMOOTH])
        graph, inputs = growing.finished(outputs, False), growing.feed(())
        with np.errstate(all="ignore"):
            expected = engine.Session(graph, backend="reference").run(inputs)
        for mine, theirs, tensor in zip(answers(graph, inputs), expected, outputs, strict=True):
            hold(mine, theirs, tensor.is_exact, 1e-4)
