"""Normalisation: what it refuses, and properties beyond the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine import TensorSpec
from tests.engine.layers.refusals import build, refusal, tensor


@pytest.mark.parametrize(
    ("type", "operands", "params", "message"),
    [
        ("F.batch_norm", [tensor(4), None, None], {}, "rank does not fit: found [4], expected 2 axes or more"),
        (
            "F.batch_norm",
            [tensor(2, 4), tensor(3), tensor(3)],
            {},
            "weights do not fit the channels: found [3], expected [4]",
        ),
        (
            "nn.InstanceNorm2d",
            [tensor(2, 3)],
            {},
            "rank does not fit: found [2, 3], expected 3 axes or, with a batch, 4",
        ),
        (
            "nn.GroupNorm",
            [tensor(2, 5)],
            {"num_groups": 2},
            "channels are not divisible by groups: found 5, expected 2 groups",
        ),
        ("nn.GroupNorm", [tensor(2, 5)], {"num_groups": 0}, "num_groups is too small: found 0, expected at least 1"),
        (
            "F.layer_norm",
            [tensor(2, 5)],
            {"normalized_shape": (2, 4)},
            "input does not end in the normalised shape: found [2, 5], expected to end in [2, 4]",
        ),
        (
            "F.layer_norm",
            [tensor(2, 5), tensor(4)],
            {"normalized_shape": (5,)},
            "weights do not fit the normalised shape: found [4], expected [5]",
        ),
        (
            "F.rms_norm",
            [tensor(5)],
            {"normalized_shape": (2, 5)},
            "input does not end in the normalised shape: found [5], expected to end in [2, 5]",
        ),
        (
            "nn.LocalResponseNorm",
            [tensor(2, 5)],
            {"size": 3},
            "rank does not fit: found [2, 5], expected 3 axes or more",
        ),
        ("nn.LocalResponseNorm", [tensor(2, 5, 1)], {"size": 0}, "size is too small: found 0, expected at least 1"),
        ("F.normalize", [tensor(5)], {}, "dim is out of range: found 1, expected -1 to 0"),
    ],
)
def test_what_does_not_fit_is_refused(type: str, operands: list[Any], params: dict[str, Any], message: str) -> None:
    assert refusal(type, *operands, **params) == message


@pytest.mark.parametrize(
    ("type", "params", "message"),
    [
        ("nn.BatchNorm2d", {"affine": False}, "operand 'running_mean' is missing: found 1 operands"),
        ("nn.BatchNorm2d", {"affine": True}, "attribute 'weight' is missing: found affine=True without it"),
        (
            "nn.InstanceNorm1d",
            {"track_running_stats": True},
            "attribute 'running_mean' is missing: found track_running_stats=True without it",
        ),
        (
            "nn.LayerNorm",
            {"elementwise_affine": True, "normalized_shape": (3,)},
            "attribute 'weight' is missing: found elementwise_affine=True without it",
        ),
    ],
)
def test_announced_attributes_must_be_there(type: str, params: dict[str, Any], message: str) -> None:
    assert refusal(type, tensor(2, 3, 4, 4), **params) == message


def test_dynamic_dimensions_stay_dynamic() -> None:
    spec = TensorSpec((None, None, 5), np.dtype(np.float32))
    assert build("F.layer_norm", 1, normalized_shape=(5,)).infer([spec]) == spec
    assert build("F.group_norm", 1, num_groups=2).infer([spec]) == spec


rows = arrays(np.float64, (3, 8), elements=st.floats(-1e3, 1e3, width=32))


@given(rows)
def test_layer_norm_centres_every_row(x: np.ndarray) -> None:
    result = build("F.layer_norm", 1, normalized_shape=(8,)).forward([x])
    np.testing.assert_allclose(result.mean(axis=1), 0, atol=1e-6)
    assert (result.var(axis=1) <= 1 + 1e-6).all()


@given(rows)
def test_one_group_is_layer_norm_of_an_instance(x: np.ndarray) -> None:
    group = build("F.group_norm", 1, num_groups=1).forward([x])
    np.testing.assert_array_equal(group, build("F.layer_norm", 1, normalized_shape=(8,)).forward([x]))
