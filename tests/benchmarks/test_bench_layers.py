"""The operator benchmark's catalogue, check and report; nothing is timed, torch is not needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_layers import parser
from benchmarks.layers.case import Case, Draw, normal
from benchmarks.layers.catalogue import CASES, LEFT_OUT, select
from benchmarks.layers.measure import Record, difference
from benchmarks.layers.report import markdown, save
from engine import Annotations, registry
from engine.layers import bind
from tests.benchmarks.build import MACHINE

ROOT = Path(__file__).parents[2]
FAMILIES = {path.stem for path in (ROOT / "tests/data/layers").glob("*.zip")}


def record(name: str, ours_us: float = 0, torch_us: float = 0, failure: str = "") -> Record:
    case = Case(family="f", type=name, call=lambda t, x: x, operands=(normal(2, 3), 4))
    times = [[each * 1e-6, each * 2e-6, each * 3e-6] if each else [] for each in (ours_us, torch_us)]
    return Record(case=case, ours_s=times[0], torch_s=times[1], failure=failure)


def test_every_family_of_samples_has_a_case_or_a_reason() -> None:
    assert {case.family for case in CASES} | set(LEFT_OUT) == FAMILIES
    assert not {case.family for case in CASES} & set(LEFT_OUT)


def test_names_tell_cases_apart() -> None:
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_layer_of_a_case_takes_what_it_is_fed(case: Case) -> None:
    annotations = Annotations(inputs=(None,) * len(case.operands), outputs=(None,))
    attributes = {key: np.zeros(draw.shape, np.float32) for key, draw in case.attributes.items()}
    bind(
        registry[case.type],
        n_inputs=len(case.operands),
        params=case.params,
        attributes=attributes,
        annotations=annotations,
    )


@pytest.mark.parametrize("kind", ["normal", "uniform", "integers", "bools", "complex", "ordered", "steps"])
def test_the_same_seed_draws_the_same(kind: str) -> None:
    draw = Draw(kind, (5,), 3)
    np.testing.assert_array_equal(draw.array("a"), draw.array("a"))


def test_cases_are_found_by_parts_of_their_names() -> None:
    assert {case.family for case in select(["softmax"])} == {"softmax"}
    assert {case.type for case in select(["nn.GELU"])} == {"nn.GELU"}
    assert select([]) == list(CASES)
    with pytest.raises(ValueError, match="no case has 'nothing'"):
        select(["nothing"])


@pytest.mark.parametrize(
    ("found", "expected", "problem"),
    [
        (np.ones(3), np.ones(3), ""),
        (np.ones(3), np.ones(3) + 1e-6, ""),
        ((np.ones(3), np.arange(3)), [np.ones(3)], ""),
        (np.ones(3), np.ones(3) * 1.01, "differs by 9.9e-03 of the largest magnitude"),
        (np.arange(3), np.array([0, 1, 3]), "differs by 1.0e+00 of the largest magnitude"),
        (np.ones(3), np.array([1, 1, np.nan]), "differs by nan of the largest magnitude"),
        (np.ones(3), np.ones(3, np.float32), "found float64[3], expected float32[3]"),
        (np.ones(3), np.ones((1, 3)), "found float64[3], expected float64[1, 3]"),
    ],
)
def test_wrong_answers_are_found(found: object, expected: object, problem: str) -> None:
    assert difference(found, expected) == problem


def test_the_report_has_the_slowest_first_and_the_wrong_ones_last() -> None:
    records = [record("quick", 10, 40), record("slow", 90, 30), record("odd", failure="differs")]
    text = markdown(MACHINE | {"load": 0.3, "engines": {"torch": "torch 2"}}, records)
    assert "The machine did nothing else." in text
    assert "2 operators: ours / torch 1.62 at the median, 1 slower than torch." in text
    assert text.index("| slow ") < text.index("| quick") < text.index("- odd: differs")
    assert "90.0 / 180.0" in text
    assert " 2x3 |" in text


def test_a_shared_machine_is_told() -> None:
    text = markdown(MACHINE | {"load": 3.5, "engines": {"torch": "torch 2"}}, [record("a", 1, 1)])
    assert "The machine was shared: other processes were running (load 3.5)" in text


def test_json_lies_beside_the_table(tmp_path: Path) -> None:
    save(tmp_path / "new" / "layers", MACHINE | {"load": 0, "engines": {"torch": "torch 2"}}, [record("a", 2, 4)])
    (row,) = json.loads((tmp_path / "new" / "layers.json").read_text())["records"]
    assert row == {
        "name": "a", "family": "f", "type": "a", "size": "2x3", "ours_us": {"min": 2.0, "median": 4.0},
        "torch_us": {"min": 4.0, "median": 8.0}, "ratio": 0.5, "median_ratio": 0.5,
    }  # fmt: skip
    assert (tmp_path / "new" / "layers.md").exists()


def test_everything_is_measured_unless_one_says_otherwise() -> None:
    options = parser().parse_args([])
    assert (options.only, options.check_only) == ([], False)
