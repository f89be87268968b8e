"""Maxima with their places: they agree with the reference, NaN and equal elements too, between guard pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.pooling.pool_indices import PoolIndices
from engine.compiler.kernels.windows import WindowAxis
from engine.layers.pooling.max_pool import MaxPool
from engine.pnnx import Operator
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run
from tests.engine.graph.build import INPUT, built, conv, op

RANDOM = np.random.default_rng(4)


def check(pool: Operator, shape: tuple[int, ...]) -> str:
    """Hold machine code against the reference; what computed it."""
    x = RANDOM.integers(-3, 3, shape).astype(np.float32)
    x[RANDOM.random(shape) < 0.1] = np.nan
    x[RANDOM.random(shape) < 0.2] = -np.inf
    outs = [op("pnnx.Output", f"out{name}", name) for name in pool.outputs]
    net = built(INPUT, pool, *outs, _0=shape)
    wanted = Session(net, backend="reference").run([x])
    session = Session(net, backend="compiled", cache=None, threads=1)
    for mine, theirs in zip(session.run([x]), wanted, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    return str(session.describe()["operators"][1]["kernel"])


@pytest.mark.parametrize(
    ("rank", "shape"), [(1, (2, 5, 11)), (2, (2, 20, 7, 9)), (3, (2, 3, 5, 4, 6)), (2, (5, 8, 8)), (1, (3, 9))]
)
def test_places_agree_with_the_reference(rank: int, shape: tuple[int, ...]) -> None:
    given: dict[str, Any] = {"kernel_size": (3,) * rank, "stride": (2,) * rank, "padding": (1,) * rank}
    given |= {"ceil_mode": True, "dilation": (1,) * rank, "return_indices": True}
    assert check(op(f"nn.MaxPool{rank}d", "pool", "0", "1 2", **given), shape) == "pool"
    sizes = (3, 2, 4)[:rank]
    adaptive = op(f"nn.AdaptiveMaxPool{rank}d", "pool", "0", "1 2", output_size=sizes, return_indices=True)
    assert check(adaptive, shape) == "pool"


def test_what_follows_reads_maxima_and_places_where_they_lie() -> None:
    net = built(
        INPUT,
        conv("first", "0", "1", (3, 20), padding=(1, 1)),
        op("nn.MaxPool2d", "pool", "1", "2 3", kernel_size=(2, 2), stride=(2, 2), dilation=(1, 1), return_indices=True),
        conv("second", "2", "4", (20, 20), padding=(1, 1)),
        op("nn.MaxUnpool2d", "unpool", "4 3", "5", kernel_size=(2, 2), stride=(2, 2), padding=(0, 0)),
        op("pnnx.Output", "out", "5"),
        _0=(2, 3, 8, 10),
    )
    x = RANDOM.standard_normal((2, 3, 8, 10)).astype(np.float32)
    (wanted,) = Session(net, backend="reference").run([x])
    (found,) = Session(net, backend="compiled", cache=None).run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [1, 3, 16, 21])
@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_beside_is_touched(level: str, channels: int, at_end: bool) -> None:
    image = RANDOM.standard_normal((2, 5, 6, channels)).astype(np.float32)
    layer = MaxPool(spatial_rank=2, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(1,), return_indices=True)
    wanted = [each.transpose(0, 2, 3, 1) for each in layer.forward(np.ascontiguousarray(image.transpose(0, 3, 1, 2)))]
    down, across = (WindowAxis(size=size, count=3, kernel=3, stride=2, padding=1) for size in (5, 6))
    kernel = PoolIndices(
        batch=2,
        channels=channels,
        depth=WindowAxis(size=1, count=1),
        down=down,
        across=across,
        source=dense(5, 6, channels),
        target=dense(3, 3, channels),
        indices=dense(3, 3, channels),
        host=describe(level),
    )
    values = guarded_array(np.zeros((2, 3, 3, channels), np.float32), at_end=at_end)
    words = guarded_array(np.zeros((2, 3, 3, 2 * channels), np.float32), at_end=at_end)
    run(kernel, level, [guarded_array(image, at_end=at_end), values, words])
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(words.view(np.int64), wanted[1])
