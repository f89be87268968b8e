"""check() lists everything that is wrong at once."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import engine
from tests.engine.graph.build import F32, INPUT, graph, op
from tests.engine.layers.samples import Sample, all_samples
from tests.fuzz.files import mutate
from tests.nightly import IS_NIGHTLY

SHARING = [sample for sample in all_samples() if sample.path.stem == "sharing"]
RECORDED = [sample for folder in ("layers", "networks", "passes") for sample in all_samples(folder)]


def saved(folder: Path, *operators: object, **shapes: tuple[int, ...]) -> tuple[Path, Path]:
    paths = folder / "net.pnnx.param", folder / "net.pnnx.bin"
    graph(*operators, **shapes).save(*paths)  # type: ignore[arg-type]
    return paths


def test_a_sound_model_has_no_problems(tmp_path: Path) -> None:
    paths = saved(tmp_path, INPUT, op("nn.ReLU", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=(1, 3))
    assert engine.check(*paths) == []


def test_unknown_types_and_bad_parameters_are_listed_together(tmp_path: Path) -> None:
    paths = saved(
        tmp_path,
        INPUT,
        op("nn.Relu", "a", "0", "1"),
        op("nn.LeakyReLU", "b", "1", "2", slope=1),
        op("nn.LeakyReLU", "c", "2", "3", negative_slope="steep"),
        op("pnnx.Output", "out", "3"),
    )
    assert [str(problem) for problem in engine.check(*paths)] == [
        "no layer for 1 operator type: 'nn.Relu' (a; did you mean 'nn.ReLU'?); --plugin FILE.py loads layers "
        "of your own (engine.register)",
        "b (nn.LeakyReLU): unknown parameter 'slope', expected input, negative_slope",
        "c (nn.LeakyReLU): parameter 'negative_slope': wrong kind of value: found 'steep', expected float",
    ]


def test_damaged_weights_are_found_by_their_checksum(tmp_path: Path) -> None:
    weight = np.arange(3, dtype=F32)
    paths = saved(tmp_path, op("pnnx.Attribute", "w", "", "1", data=weight), op("pnnx.Output", "out", "1"))
    content = bytearray(paths[1].read_bytes())
    content[content.index(weight.tobytes())] ^= 1
    paths[1].write_bytes(content)
    problems = engine.check(*paths)
    assert len(problems) == 1
    assert isinstance(problems[0], engine.WeightsError)
    assert "w.data" in str(problems[0])


def test_contradicting_annotations_are_warnings(tmp_path: Path) -> None:
    relu, out = op("nn.ReLU", "relu", "0", "1"), op("pnnx.Output", "out", "1")
    problems = engine.check(*saved(tmp_path, INPUT, relu, out, _0=(1, 3), _1=(1, 4)))
    assert [type(problem) for problem in problems] == [engine.Mismatch]


def test_a_strict_check_makes_them_errors_with_what_was_found_and_expected(tmp_path: Path) -> None:
    lines = [INPUT, op("nn.ReLU", "a", "0", "1"), op("nn.ReLU", "b", "1", "2"), op("pnnx.Output", "out", "2")]
    problems = engine.check(*saved(tmp_path, *lines, _0=(1, 3), _1=(1, 4), _2=(2, 3)), strict=True)
    assert [type(problem) for problem in problems] == [engine.GraphError] * 2
    cause = "possible cause: a slice on a dynamic dimension is dropped; export it with a bound taken from the size"
    assert [str(problem) for problem in problems] == [
        "a (nn.ReLU): operand '1' contradicts the file: found [1, 3] float32, expected [1, 4] float32 as annotated; "
        + cause,
        "b (nn.ReLU): operand '2' contradicts the file: found [1, 3] float32, expected [2, 3] float32 as annotated; "
        + cause,
    ]


def agrees_with_load(paths: tuple[Path, Path]) -> bool:
    errors = [problem for problem in engine.check(*paths) if isinstance(problem, engine.EngineError)]
    try:
        engine.load(*paths)
    except engine.EngineError:
        return bool(errors)
    return not errors


@pytest.mark.parametrize("sample", SHARING, ids=lambda sample: sample.id)
def test_modules_that_share_a_parameter_have_no_problems(sample: Sample, tmp_path: Path) -> None:
    assert engine.check(*sample.extract(tmp_path)) == []


def test_every_recorded_file_is_refused_exactly_if_it_cannot_be_loaded(tmp_path: Path) -> None:
    samples = RECORDED if IS_NIGHTLY else RECORDED[::20]
    assert [sample.id for sample in samples if not agrees_with_load(sample.extract(tmp_path))] == []


def test_a_changed_file_is_refused_exactly_if_it_cannot_be_loaded(tmp_path: Path) -> None:
    differ = []
    for seed, sample in enumerate(all_samples()[:: 5 if IS_NIGHTLY else 50]):
        paths = sample.extract(tmp_path)
        paths[0].write_text(mutate(sample.param, random.Random(seed)))
        if not agrees_with_load(paths):
            differ.append(sample.id)
    assert differ == []


def test_a_bundle_is_checked_as_it_is_loaded(tmp_path: Path) -> None:
    graph = engine.load(*saved(tmp_path, INPUT, op("nn.ReLU", "a", "0", "1"), op("pnnx.Output", "out", "1"), _0=(1, 3)))
    engine.Session(graph).save_bundle(tmp_path / "bundle")
    assert engine.check(tmp_path / "bundle") == []
    (tmp_path / "bundle" / "model.pnnx.param").write_text("7767517\n")
    (problem,) = engine.check(tmp_path / "bundle")
    assert isinstance(problem, engine.BundleError)
