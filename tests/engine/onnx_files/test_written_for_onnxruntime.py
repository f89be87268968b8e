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
