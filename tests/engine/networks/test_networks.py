"""Whole networks against PyTorch's recorded answers: other batches, other shapes, saved and read again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import engine
from tests.engine.layers.samples import InputSet, Sample, all_samples

SAMPLES = all_samples("networks")
every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)


@pytest.fixture
def session(sample: Sample, tmp_path: Path) -> engine.Session:
    return engine.Session(engine.load(*sample.extract(tmp_path)), backend="reference")


def assert_answers(session: engine.Session, each: InputSet, sample: Sample) -> None:
    outputs = session.run(each.inputs)
    assert [(a.shape, a.dtype) for a in outputs] == [(a.shape, a.dtype) for a in each.outputs]
    for found, expected in zip(outputs, each.outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=sample.rtol, atol=sample.atol)


@every
def test_network_gives_pytorchs_answer_at_every_batch_and_shape(sample: Sample, session: engine.Session) -> None:
    for each in sample.sets:
        assert_answers(session, each, sample)


def test_networks_of_dynamic_size_are_recorded_at_two_shapes_the_converter_never_saw() -> None:
    """Of the recorded shapes the first is the converter's first; its second is recorded for none of them."""
    dynamic = [sample for sample in SAMPLES if re.search(r"#\S+=\(\?,.*\?", sample.param)]
    items = {sample.name: {each.inputs[0].shape[1:] for each in sample.sets} for sample in dynamic}
    assert len(dynamic) >= 8
    assert {name: len(shapes) for name, shapes in items.items()} == dict.fromkeys(items, 3)


@every
def test_batches_run_as_one(sample: Sample, session: engine.Session) -> None:
    assert session.describe()["batch"] == {
        "mode": "any",
        "exported": None if session.graph.inputs[0].spec.shape[0] is None else 1,  # type: ignore[union-attr]
        "reason": None,
    }


@every
def test_no_shape_contradicts_the_file(sample: Sample, session: engine.Session) -> None:
    assert session.graph.warnings == ()


@every
def test_saved_and_read_again_it_answers_the_same(sample: Sample, session: engine.Session, tmp_path: Path) -> None:
    paths = tmp_path / "copy.pnnx.param", tmp_path / "copy.pnnx.bin"
    session.graph.save(*paths)
    copy = engine.load(*paths)
    assert copy.source == session.graph.source
    inputs = sample.sets[0].inputs
    for a, b in zip(engine.Session(copy, backend="reference").run(inputs), session.run(inputs), strict=True):
        np.testing.assert_array_equal(a, b)


@every
def test_measured_peak_memory_is_the_plans(sample: Sample, session: engine.Session) -> None:
    if all(port.spec is not None and port.spec.is_static for port in session.graph.inputs):
        measured = session.run(sample.sets[0].inputs, profile=True).peak_bytes
        assert measured == session.graph.plan.peak_bytes
