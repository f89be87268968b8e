"""Scores to labels; exact arithmetic with decimals is the oracle of the activations."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.errors import ConfigError, InvalidRequestError
from app.tasks.classification import ClassificationTask
from app.tasks.probabilities import activate
from tests.app.tasks.build import task_of

SCORES = arrays.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 5)), elements=st.floats(-300, 300))


task = partial(task_of, ClassificationTask, outputs=2)


def predict(made: ClassificationTask, scores: object, **parameters: object) -> list[list[dict[str, object]]]:
    outputs = {"out0": np.array(scores, np.float32), "out1": np.zeros((1, 2), np.float32)}
    return made.predict(outputs, (), made.options(parameters))


def softmax(row: list[float]) -> list[float]:
    powers = [Decimal(x).exp() for x in row]
    return [float(power / sum(powers)) for power in powers]


@given(SCORES)
def test_activations_are_their_formulas(scores: np.ndarray) -> None:
    rows = scores.tolist()
    np.testing.assert_allclose(activate(scores, "softmax"), [softmax(row) for row in rows], rtol=1e-10)
    sigmoid = [[float(1 / (1 + Decimal(-x).exp())) for x in row] for row in rows]
    np.testing.assert_allclose(activate(scores, "sigmoid"), sigmoid, rtol=1e-10)
    np.testing.assert_array_equal(activate(scores, "none"), scores)


def test_auto_leaves_a_distribution_alone_row_by_row() -> None:
    found = activate(np.array([[0.25, 0.75], [1.0, 2.0]]), "auto")
    np.testing.assert_allclose(found, [[0.25, 0.75], softmax([1.0, 2.0])])


def test_the_best_come_first_with_label_probability_and_index() -> None:
    found = predict(task(("a", "b", "c"), activation="none", top_k=2), [[0.25, 0.75, 0.5]])
    assert found == [[{"label": "b", "probability": 0.75, "index": 1}, {"label": "c", "probability": 0.5, "index": 2}]]


def test_classes_without_labels_are_called_by_their_number() -> None:
    assert [row["label"] for row in predict(task(), [[1, 3, 2]])[0]] == ["1", "2", "0"]


def test_equal_scores_keep_the_order_of_the_classes() -> None:
    assert [row["index"] for row in predict(task(), [[1, 2, 2, 1]])[0]] == [1, 2, 0, 3]


def test_top_k_may_exceed_the_classes() -> None:
    assert len(predict(task(), [[1, 2]], top_k=100)[0]) == 2


def test_maps_of_one_pixel_are_classes() -> None:
    assert predict(task(), np.ones((2, 3, 1, 1))) == predict(task(), np.ones((2, 3)))


def test_another_output_can_be_named() -> None:
    assert len(predict(task(output="out1"), [[1, 2, 3]])[0]) == 2


def test_what_is_not_a_number_comes_last_and_is_null() -> None:
    rows = predict(task(activation="none"), [[np.nan, 1.0]])[0]
    assert [(row["index"], row["probability"]) for row in rows] == [(1, 1.0), (0, None)]
    assert all(row["probability"] is None for row in predict(task(), [[np.nan, 1.0]])[0])


def test_probabilities_have_the_digits_of_a_float32() -> None:
    assert predict(task(activation="none"), [[np.float32(0.1)]])[0][0]["probability"] == 0.1


@pytest.mark.parametrize("parameters", [{"top_k": "3"}, {"top_k": 3}])
def test_a_request_can_ask_for_fewer(parameters: dict[str, object]) -> None:
    assert len(predict(task(), [[1, 2, 3, 4]], **parameters)[0]) == 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"top_k": 0}, "top_k: expected at least 1, found 0"),
        ({"top_k": "x"}, "top_k: .*found 'x'"),
        ({"topk": 1}, r"unknown parameter 'topk' \(did you mean 'top_k'\?\), this model takes 'top_k', 'activation'"),
        ({"output": "out1"}, "unknown parameter 'output'"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        task().options(parameters)


@pytest.mark.parametrize("shape", [(3,), (1, 3, 2), ()])
def test_outputs_that_are_no_scores_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"output 'out0': found shape .* expected \(N, classes\)"):
        predict(task(), np.ones(shape))


def test_labels_must_be_one_per_class() -> None:
    with pytest.raises(ConfigError, match="labels: found 2, expected 3, one for each class of the model"):
        predict(task(("a", "b")), [[1, 2, 3]])


def test_an_output_the_model_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="classification.output: found 'out9', expected one of 'out0', 'out1'"):
        task(output="out9")
