"""A few changed models, and all that ever were a finding."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

from tests.fuzz import files
from tests.fuzz.child import run

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.json"))


def test_changed_models_are_refused_in_words_or_run_alike_both_ways() -> None:
    results = list(run(files.FRONT_END, islice(files.cases(0), 40), files.LIMITS))
    assert [str(result) for result in results if result.is_finding] == []
    assert {result.outcome.partition(" ")[0].partition(":")[0] for result in results} >= {"ran", "refused"}


def test_what_was_once_a_finding_is_none() -> None:
    cases = [json.loads(path.read_text()) for path in SEEDS]
    found = zip(SEEDS, run(files.FRONT_END, cases, files.LIMITS), strict=True)
    assert [f"{path.name}: {result}" for path, result in found if result.is_finding] == []


def test_a_change_leaves_a_text_file_one() -> None:
    sample = files.samples()["mobile-mobilenet_v3"]
    for seed in range(50):
        head, counts, *lines = files.mutate(sample.param, random.Random(seed)).splitlines()
        assert head == "7767517"
        assert all(len(line.split()) >= 4 for line in lines)
        assert len(counts.split()) == 2
