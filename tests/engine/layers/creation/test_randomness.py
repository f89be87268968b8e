"""Random operators: what can be said of any draw."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from engine.layers.creation.distribution import Bernoulli, Exponential, Multinomial, Normal, Poisson, Uniform
from engine.layers.creation.randomness import Rand, RandInt, RandN, RandPerm, generator

DRAWS = 20_000


@pytest.mark.parametrize(
    ("draws", "mean", "deviation"),
    [
        (RandN(size=(DRAWS,)).forward(), 0.0, 1.0),
        (Rand(size=(DRAWS,)).forward(), 0.5, 12**-0.5),
        (RandInt(size=(DRAWS,), low=-2, high=3).forward(), 0.0, 2**0.5),
        (Normal().forward(np.full(DRAWS, 3.0), 2.0), 3.0, 2.0),
        (Uniform(low=-1.0, high=3.0).forward(np.zeros(DRAWS)), 1.0, 4 * 12**-0.5),
        (Exponential(rate=2.0).forward(np.zeros(DRAWS)), 0.5, 0.5),
        (Bernoulli().forward(np.full(DRAWS, 0.25)), 0.25, 0.1875**0.5),
        (Poisson().forward(np.full(DRAWS, 4.0)), 4.0, 2.0),
    ],
    ids=["randn", "rand", "randint", "normal", "uniform", "exponential", "bernoulli", "poisson"],
)
def test_draws_have_the_distributions_mean_and_deviation(draws: Any, mean: float, deviation: float) -> None:
    assert abs(draws.mean() - mean) < 6 * deviation / DRAWS**0.5
    assert abs(draws.std() - deviation) < 0.1 * deviation


def test_weights_decide_how_often_a_place_is_drawn() -> None:
    places = Multinomial(num_samples=DRAWS, replacement=True).forward(np.array([1.0, 0.0, 3.0]))
    np.testing.assert_allclose(np.bincount(places, minlength=3) / DRAWS, [0.25, 0, 0.75], atol=0.03)


def test_draws_without_replacement_do_not_repeat() -> None:
    places = Multinomial(num_samples=4).forward(np.ones((50, 4)))
    np.testing.assert_array_equal(np.sort(places, -1), np.tile(np.arange(4), (50, 1)))


def test_a_permutation_names_every_number_once() -> None:
    np.testing.assert_array_equal(np.sort(RandPerm(n=100).forward()), np.arange(100))


def test_uniform_numbers_of_single_precision_stay_below_1() -> None:
    assert Rand(size=(100_000,)).forward().max() < 1


def test_every_process_has_a_generator_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = generator()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert generator() is not ours
    assert generator() is generator()
