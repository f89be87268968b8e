"""Replicas of a machine share what they load."""

from __future__ import annotations

import os

import pytest

from benchmarks.ray import second

pytestmark = pytest.mark.slow


def test_another_replica_compiles_nothing_and_adds_less_than_a_third_of_the_weights_to_memory() -> None:
    if not os.environ.get("WITH_RAY"):
        pytest.skip("three processes that load 67 MB each: 'make scale' runs this")
    found = second.run("plain")
    assert found["compiled by the third"] == 0
    assert found["Pss added, share of the weights"] < 0.3
