"""Every candidate computes the same; the fastest is selected, and reused by later compilations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.compiler import builder
from engine.compiler.cache import notes
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import ConvTile, rank_tiles
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.tuning import tuner
from engine.compiler.tuning.stopwatch import Stopwatch
from engine.graph import RuntimeGraph
from tests.engine.compiler.cache.keeping import X, convolution
from tests.engine.compiler.kernels.convolution.pointwise import pointwise
from tests.engine.graph.build import INPUT, built, conv, op

RANDOM = np.random.default_rng(3)


def random(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


GRAPHS: dict[str, tuple[RuntimeGraph, list[Any]]] = {
    "winograd": (
        built(INPUT, conv("c", "0", "1", (24, 40), padding=(1, 1)), op("pnnx.Output", "o", "1"), _0=(2, 24, 13, 17)),
        [random(2, 24, 13, 17)],
    ),
    "direct": (
        built(
            INPUT,
            conv("c", "0", "1", (5, 36), kernel=(3, 3), stride=(2, 2), padding=(1, 1)),
            op("F.relu", "r", "1", "2"),
            op("pnnx.Output", "o", "2"),
            _0=(1, 5, 15, 22),
        ),
        [random(1, 5, 15, 22)],
    ),
    "pointwise": (
        built(INPUT, conv("c", "0", "1", (19, 50), kernel=(1, 1)), op("pnnx.Output", "o", "1"), _0=(1, 19, 9, 11)),
        [random(1, 19, 9, 11)],
    ),
    "depthwise": (
        built(
            INPUT,
            conv("c", "0", "1", (33, 33), groups=33, padding=(1, 1)),
            op("pnnx.Output", "o", "1"),
            _0=(1, 33, 11, 14),
        ),
        [random(1, 33, 11, 14)],
    ),
    "product": (
        built(
            op("pnnx.Input", "a", "", "0"),
            op("pnnx.Input", "b", "", "1"),
            op("torch.matmul", "m", "0 1", "2"),
            op("pnnx.Output", "o", "2"),
            _0=(3, 21, 40),
            _1=(3, 40, 50),
        ),
        [random(3, 21, 40), random(3, 40, 50)],
    ),
}


class Fake(Stopwatch):
    """Stopwatch that finds a given candidate fastest."""

    winner = 0
    offered: list[list[str]] = []

    def __init__(self, *_: object) -> None:
        pass

    def times(self, steps: Sequence[KernelStep]) -> list[float]:
        self.offered.append([step.kernel.name for step in steps])
        winner = min(self.winner, len(steps) - 1)
        return [1e-6 if k == winner else 1.0 for k in range(len(steps))]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setattr("engine.compiler.tuning.stopwatch.Stopwatch", Fake)
    monkeypatch.setattr(builder, "is_unchanged", lambda: True)
    Fake.offered, Fake.winner = [], 0
    return Fake


def session(graph: RuntimeGraph, cache: Path | None = None) -> engine.Session:
    return engine.Session(graph, backend="compiled", threads=1, cache=cache)


@pytest.mark.parametrize("winner", [0, 1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_candidate_computes_the_same(name: str, winner: int, fake: type[Fake]) -> None:
    graph, inputs = GRAPHS[name]
    fake.winner = winner
    found = session(graph)
    (tuned,) = (found.prepare(tune=True) or {})["tuned"].values()
    (offered,) = fake.offered
    assert len(set(offered)) == len(offered) >= 2
    assert (tuned["kernel"] == tuned["first"]) == (winner == 0)
    expected = engine.Session(graph, backend="reference").run(inputs)[0]
    np.testing.assert_allclose(found.run(inputs)[0], expected, rtol=1e-3, atol=1e-4)


def test_later_compilations_of_other_networks_reuse_the_fastest_kernel(tmp_path: Path, fake: type[Fake]) -> None:
    fake.winner = 1
    first = (session(convolution(), tmp_path).prepare(tune=True) or {})["tuned"]["conv"]
    assert first["kernel"] != first["first"]
    made = session(convolution(seed=1), tmp_path).prepare() or {}
    assert made["is_cached"] is False and made["tuned"] == {"conv": first}
    again = session(convolution(), tmp_path).prepare() or {}
    assert again["is_cached"] is True and again["tuned"] == {"conv": first}
    assert len(fake.offered) == 1


def test_tuning_again_measures_again(tmp_path: Path, fake: type[Fake]) -> None:
    for winner in (1, 0):
        fake.winner = winner
        found = (session(convolution(), tmp_path).prepare(tune=True) or {})["tuned"]["conv"]
        assert (found["kernel"] == found["first"]) == (winner == 0)
    assert len(fake.offered) == 2


def test_without_tuning_nothing_is_measured_or_reported(tmp_path: Path, fake: type[Fake]) -> None:
    assert (session(convolution(), tmp_path).prepare() or {})["tuned"] == {}
    assert not fake.offered and not list(tmp_path.glob(f"*{notes.SUFFIX}"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 50_000,
        b'{"kernel": "conv tile=of another generator", "time_us": 1, "first": "x", "first_us": 2}',
        b'{"kernel": 3, "time_us": "x", "first": "x", "first_us": 2}',
    ],
)
def test_an_unusable_note_is_ignored(content: bytes, tmp_path: Path, fake: type[Fake]) -> None:
    fake.winner = 1
    session(convolution(), tmp_path).prepare(tune=True)
    (note,) = tmp_path.glob(f"*{notes.SUFFIX}")
    note.write_bytes(content)
    found = session(convolution(seed=2), tmp_path)
    assert (found.prepare() or {})["tuned"] == {}
    np.testing.assert_allclose(
        found.run([X])[0], engine.Session(convolution(seed=2), backend="reference").run([X])[0], rtol=1e-3, atol=1e-4
    )


def test_a_kernel_that_saves_little_or_leaves_threads_idle_is_not_selected() -> None:
    kernels = [kernel(4, 7), kernel(2, 14), kernel(28, 1)]
    assert tuner._verdict(kernels, [1.0, 0.98, 2.0]).kernel == tuner.variant(kernels[0])
    assert tuner._verdict(kernels, [1.0, 0.9, float("inf")]).kernel == tuner.variant(kernels[1])
    assert tuner.idle_cost(1) > tuner.idle_cost(3) > tuner.idle_cost(64)
    assert tuner.idle_cost(4) == pytest.approx(1.0)


def kernel(rows: int, columns: int) -> Conv:
    """Return a direct convolution of 28 x 28 pixels."""
    return pointwise(describe("avx2"), (28, 28), (16, 16), ConvTile(rows, columns, 1))


def test_kernels_of_the_same_geometry_share_a_note() -> None:
    one, other = kernel(4, 7), kernel(2, 14)
    assert tuner.geometry(one) == tuner.geometry(other)
    assert tuner.variant(one) != tuner.variant(other)


def test_the_first_of_a_ranking_is_the_default_choice() -> None:
    host = kernel(1, 1).host
    (best,), three = rank_tiles(host, 28, 28, 64), rank_tiles(host, 28, 28, 64, count=3)
    assert three[0] == best and len(set(three)) == 3


def test_a_real_stopwatch_measures_kernels(tmp_path: Path) -> None:
    (tuned,) = (session(convolution(), tmp_path).prepare(tune=True) or {})["tuned"].values()
    assert 0 < tuned["time_us"] < 1e6 and 0 < tuned["first_us"] < 1e6
