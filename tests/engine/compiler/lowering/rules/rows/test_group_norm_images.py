"""Norms of groups and instances beside convolutions: an image is read where it lies, and nothing is turned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.pnnx import Operator
from engine.tensor import Array
from tests.combining import together
from tests.engine.graph.build import F32, built, conv, op

SIZES = {1: (37,), 2: (9, 13), 3: (4, 7, 6)}


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def group_norm(groups: int, channels: int, *, affine: bool) -> Operator:
    weights = {"weight": numbers(1, channels), "bias": numbers(2, channels)} if affine else {}
    params = {"num_groups": groups, "num_channels": channels, "eps": 1e-5, "affine": affine}
    return op("nn.GroupNorm", "norm", "a", "b", **params, **weights)


def instance_norm(rank: int, channels: int, *, affine: bool) -> Operator:
    weights = {"weight": numbers(3, channels), "bias": numbers(4, channels)} if affine else {}
    params = {"num_features": channels, "eps": 1e-5, "affine": affine, "track_running_stats": False}
    return op(f"nn.InstanceNorm{rank}d", "norm", "a", "b", **params, **weights)


def between(norm: Operator, channels: int, batch: int, sizes: tuple[int | None, ...]) -> RuntimeGraph:
    """Return a norm between two convolutions, and an activation that is fused with it."""
    rank = len(sizes)
    padded: dict[str, Any] = {"kernel": (3,) * rank, "padding": (1,) * rank}
    return built(
        op("pnnx.Input", "pnnx_input_0", "", "x"),
        conv("before", "x", "a", (3, channels), **padded),
        norm,
        op("F.silu", "silu", "b", "c"),
        conv("after", "c", "d", (channels, 8), **padded),
        op("pnnx.Output", "out", "d"),
        _x=(batch, 3, *sizes),
    )


def check(net: RuntimeGraph, *inputs: Array) -> None:
    session = Session(net, backend="compiled", cache=None, threads=2)
    reference = Session(net, backend="reference")
    for x in inputs:
        (mine,), (theirs,) = session.run([x]), reference.run([x])
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-5 * np.abs(theirs).max())
    kernels = [row["kernel"] for row in session.run([inputs[0]], profile=True).kernels if "norm" in row["operators"]]
    assert "global_average" in kernels and "layer_norm" not in kernels, kernels


@together(
    ("rank", SIZES),
    ("batch,affine", [(1, True), (3, False)]),
    ("channels,groups", [(24, 1), (24, 4), (5, 5), (70, 7), (2, 1)]),
)
def test_groups_of_any_size(rank: int, batch: int, affine: bool, channels: int, groups: int) -> None:
    net = between(group_norm(groups, channels, affine=affine), channels, batch, SIZES[rank])
    check(net, numbers(5, batch, 3, *SIZES[rank]), 50 + numbers(6, batch, 3, *SIZES[rank]))


@pytest.mark.parametrize("rank", SIZES)
@pytest.mark.parametrize(("batch", "affine"), [(1, True), (3, False), (1, False)])
def test_every_channel_by_itself(rank: int, batch: int, affine: bool) -> None:
    net = between(instance_norm(rank, 20, affine=affine), 20, batch, SIZES[rank])
    check(net, numbers(7, batch, 3, *SIZES[rank]), 50 + numbers(8, batch, 3, *SIZES[rank]))


@pytest.mark.parametrize("rank", SIZES)
def test_images_of_any_size_with_the_same_session(rank: int) -> None:
    net = between(group_norm(4, 24, affine=True), 24, 2, (None,) * rank)
    sizes = [tuple(size + k for size in SIZES[rank]) for k in (0, 5, 1, 12, 2)]
    check(net, *(numbers(9, 2, 3, *each) for each in sizes))


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e20])
def test_what_is_not_finite_stays_in_its_item_and_group(number: float) -> None:
    net = between(group_norm(4, 24, affine=True), 24, 2, SIZES[2])
    x = numbers(10, 2, 3, *SIZES[2])
    x[1, 0, 3, 4] = number
    with np.errstate(all="ignore"):
        (mine,), (theirs,) = (Session(net, backend=name, cache=None).run([x]) for name in ("compiled", "reference"))
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-4, atol=1e-4)
