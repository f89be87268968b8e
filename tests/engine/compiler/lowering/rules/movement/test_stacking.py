"""Stacks, repetitions, mirrors, patches, halves and triangles agree with the reference, and have a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session
from tests.engine.graph.build import INPUT, built, conv, op

RANDOM = np.random.default_rng(6)


def check(type: str, shape: tuple[int, ...], count: int = 1, is_image: bool = False, **given: Any) -> None:
    """Of tensors that lie row-major, and behind a convolution; some elements are not finite."""
    before = (
        [conv("before", "0", "x", (shape[1], shape[1]), (1, 1))] if is_image else [op("nn.ReLU", "before", "0", "x")]
    )
    net = built(
        INPUT,
        *before,
        op(type, "it", " ".join(["x"] + ["0"] * (count - 1)), "y", **given),
        op("nn.Sigmoid", "after", "y", "z"),
        op("pnnx.Output", "out", "z"),
        _0=shape,
    )
    x = RANDOM.standard_normal(shape).astype(np.float32)
    if not is_image:
        x.reshape(-1)[::7] = np.nan
        x.reshape(-1)[1::9] = np.inf
    with np.errstate(all="ignore"):
        (wanted,) = Session(net, backend="reference").run([x])
    session = Session(net, backend="compiled", cache=None, threads=1)
    (found,) = session.run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    rows = {row["name"]: row for row in session.describe()["operators"]}
    assert rows["it"]["kernel"] != "reference", rows["it"]


@pytest.mark.parametrize("is_image", [True, False])
@pytest.mark.parametrize(
    ("type", "count", "given"),
    [
        *(("torch.stack", 3, {"dim": dim}) for dim in (0, 1, 2, -1)),
        ("torch.stack", 1, {"dim": 0}),
        ("Tensor.repeat", 1, {"sizes": (2, 1, 3, 1)}),
        ("Tensor.repeat", 1, {"sizes": (2, 1, 1, 3, 2)}),
        ("torch.tile", 1, {"dims": (2, 3)}),
        ("torch.flip", 1, {"dims": (1, 3)}),
        ("torch.flip", 1, {"dims": (-2,)}),
        ("nn.GLU", 1, {"dim": 1}),
        ("nn.GLU", 1, {"dim": -1}),
        ("nn.Unfold", 1, {"kernel_size": (3, 3), "padding": (1, 1), "stride": (1, 1), "dilation": (1, 1)}),
        ("nn.Unfold", 1, {"kernel_size": (2, 3), "padding": (0, 0), "stride": (2, 1), "dilation": (1, 2)}),
        ("torch.tril", 1, {"diagonal": 0}),
        ("torch.triu", 1, {"diagonal": -1}),
    ],
    ids=str,
)
def test_they_agree_with_the_reference(type: str, count: int, given: dict[str, Any], is_image: bool) -> None:
    check(type, (2, 6, 5, 8), count, is_image, **given)


@pytest.mark.parametrize("shape", [(1, 1), (7, 2), (3, 40)], ids=str)
def test_of_few_dimensions(shape: tuple[int, ...]) -> None:
    check("torch.stack", shape, 2, dim=1)
    check("Tensor.repeat", shape, sizes=(3, 1, 2))
    check("torch.flip", shape, dims=(0, 1))
    check("torch.triu", shape, diagonal=1)
