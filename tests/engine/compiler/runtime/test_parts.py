"""A batch whose images weigh more than the weights runs image by image; answers and profiles do not show it."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.graph import RuntimeGraph
from tests.engine.graph.build import INPUT, built, conv, op

RANDOM = np.random.default_rng(9)
F32 = np.dtype(np.float32)


def network(size: int) -> RuntimeGraph:
    layer = conv("conv", "0", "1", (3, 8), padding=(1, 1))
    return built(INPUT, layer, op("nn.ReLU", "relu", "1", "2"), op("pnnx.Output", "out", "2"), _0=(1, 3, size, size))


@pytest.mark.parametrize(("size", "is_split"), [(16, False), (768, True)])
def test_large_images_are_run_one_by_one(size: int, is_split: bool) -> None:
    session = Session(network(size), backend="compiled", threads=1, cache=None)
    together, alone = session.prepare(batch=2), session.prepare()
    assert together is not None and alone is not None
    assert (together["arena_bytes"] == alone["arena_bytes"]) == is_split


@pytest.mark.parametrize("size", [16, 768])
def test_a_batch_gives_what_its_images_give(size: int) -> None:
    session = Session(network(size), backend="compiled", threads=1, cache=None)
    x = RANDOM.standard_normal((3, 3, size, size)).astype(F32)
    apart = np.concatenate([session.run([x[k : k + 1]])[0] for k in range(3)])
    np.testing.assert_allclose(session.run([x])[0], apart, rtol=1e-5, atol=1e-5)


def test_a_profile_adds_up_the_parts() -> None:
    session = Session(network(768), backend="compiled", threads=1, cache=None)
    x = np.zeros((2, 3, 768, 768), F32)
    outputs = session.run([x], profile=True)
    assert outputs.profile is not None
    assert [row["name"] for row in outputs.profile] == ["conv", "relu"]
    convolution = [each["time_us"] for each in outputs.kernels if each["operators"][0] == "conv"]
    assert outputs.profile[0]["time_us"] == pytest.approx(sum(convolution), rel=1e-6)


def test_what_a_batch_takes_is_estimated_anew_once_it_is_known_how_it_runs() -> None:
    session, settled = (Session(network(768), backend="compiled", threads=1, cache=None) for _ in range(2))
    x = np.zeros((3, 3, 768, 768), F32)
    before = session.estimate_bytes([x])
    for each in (session, settled):
        each.run([x[:1]])
    assert session.estimate_bytes([x]) == settled.estimate_bytes([x]) < before
