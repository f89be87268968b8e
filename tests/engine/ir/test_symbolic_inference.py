"""One inference with symbolic sizes gives what inference with numbers gives, for all sizes that pass its guards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from docs.generate_onnx_conformance import REASONS, cases, stored_cases
from engine.tensor import TensorSpec
from tests.corpus_score import DEFAULT, load_compare
from tests.engine.compiler.runtime.test_dynamic_shapes import picture_model, reader, text, text_model
from tests.engine.graph.build import built, op
from tests.engine.ir.symbolic_sweep import openings, sweep
from tests.engine.layers.samples import Sample, all_samples
from tests.engine.onnx_files.models import onnx
from tests.engine.onnx_files.test_same_answers import with_dynamic_sizes
from tests.nightly import IS_NIGHTLY

STEP = 1 if IS_NIGHTLY else 12
"""Which of the samples are looked at."""
DYNAMIC_KERNELS = 8 if IS_NIGHTLY else 2
MOST_GUARDS = 10
CASES = sorted((DEFAULT / "cases").iterdir()) if DEFAULT.is_dir() else []
F32 = np.dtype(np.float32)


def specs_of(arrays: list[Any]) -> list[TensorSpec]:
    return [TensorSpec(each.shape, each.dtype) for each in arrays]


def check(graph: engine.RuntimeGraph, specs: list[TensorSpec]) -> None:
    """Every opening of a graph."""
    for name, ports in openings(graph, specs, DYNAMIC_KERNELS):
        found = sweep(graph, ports, specs)
        assert found is None or not found.problem, f"{name}: {found.problem}"


@pytest.mark.parametrize("sample", all_samples("layers")[::STEP], ids=lambda sample: sample.id)
def test_shapes_of_layers_follow_from_symbolic_sizes(sample: Sample, tmp_path: Path) -> None:
    graph = engine.load(*sample.extract(tmp_path))
    for each in sample.sets:
        check(graph, specs_of(each.inputs))


@pytest.mark.parametrize("sample", all_samples("networks")[:: min(STEP, 3)], ids=lambda sample: sample.id)
def test_shapes_of_networks_follow_from_symbolic_sizes(sample: Sample, tmp_path: Path) -> None:
    check(engine.load(*sample.extract(tmp_path)), specs_of(sample.sets[0].inputs))


@pytest.mark.corpus
@pytest.mark.skipif(not CASES, reason="the corpus is not beside the project")
@pytest.mark.parametrize("case", CASES[::STEP], ids=lambda case: case.name)
def test_shapes_of_cases_follow_from_symbolic_sizes(case: Path) -> None:
    inputs, _ = load_compare(DEFAULT).load_set(str(case), 0)
    check(engine.load(case / "model.pnnx.param"), specs_of(inputs))


def test_shapes_of_onnx_files_follow_from_symbolic_sizes(tmp_path: Path) -> None:
    """ONNX's own backend tests, each dimension under a name of its own."""
    problems, count = {}, 0
    for case in list(cases())[::STEP] if IS_NIGHTLY else list(stored_cases("pytorch-operator"))[::2]:
        if case.operator in REASONS or case.is_training:
            continue
        path = tmp_path / "model.onnx"
        path.write_bytes(with_dynamic_sizes(case).model.SerializeToString())
        tensors = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in case.data[0][0]]
        try:
            graph = engine.load(path)
        except engine.EngineError:  # operators that take what a file says of sizes
            continue
        if len(tensors) == len(graph.inputs) and all(isinstance(each, (np.ndarray, np.generic)) for each in tensors):
            count += 1
            found = sweep(graph, graph.inputs, specs_of(tensors))
            if found is not None and found.problem:
                problems[case.name] = found.problem
    assert count >= 5
    assert not problems


def test_a_cross_product_finds_its_axis_among_dynamic_sizes() -> None:
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k in range(2)]
    cross = op("torch.cross", "cross", "0 1", "2", dim=None)
    graph = built(*ports, cross, op("pnnx.Output", "out", "2"), _0=(5, None), _1=(5, None))
    found = sweep(graph, graph.inputs, [TensorSpec((5, 3), F32)] * 2)
    assert found is not None
    assert not found.problem


@pytest.mark.parametrize(
    ("graph", "specs", "draws"),
    [
        (reader, [TensorSpec((1, 3, 8, 40), F32)], [[n] for n in range(2, 320, 7)]),
        (text_model, specs_of(text(40)), [[n, n] for n in range(2, 320, 7)]),
        (picture_model, [TensorSpec((1, 3, 40, 56), F32)], [[n, 320 - n] for n in range(2, 318, 7)]),
    ],
    ids=["reader", "text", "picture"],
)
def test_one_program_stands_for_all_sizes_of_a_network(graph: Any, specs: list[TensorSpec], draws: list[Any]) -> None:
    made = graph()
    found = sweep(made, made.inputs, specs, draws)
    assert found is not None
    assert not found.problem
    assert not found.specialised
    assert len(found.guards) < MOST_GUARDS
    assert not found.missed
