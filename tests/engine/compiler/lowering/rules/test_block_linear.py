"""Linear layers with weights in blocks: kernels against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.pnnx import Operator
from tests.engine.compiler.lowering.agreeing import check, everywhere, net_of
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(3)


def layer(name: str, terms: int, outputs: int, bits: int = 4, block: int = 32, **given: Any) -> Operator:
    """Return a layer of the input 0."""
    blocks = -(-terms // block)
    weight = RANDOM.integers(0, 256, (outputs, blocks, block * bits // 8)).astype(np.uint8)
    scales = (RANDOM.random((outputs, blocks)) / 8).astype(np.float32)
    return op("engine.BlockLinear", name, "0", name, bits=bits, block_size=block, weight=weight, scales=scales, **given)


def layers(terms: int) -> list[Operator]:
    zeros = RANDOM.integers(0, 16, (33, -(-terms // 32))).astype(np.uint8)
    middles = (RANDOM.random((5, -(-terms // 16))) * 200).astype(np.float32)
    return [
        layer("plain", terms, 70),
        layer("zeros", terms, 33, zero_points=zeros, bias=RANDOM.standard_normal(33).astype(np.float32)),
        layer("middles", terms, 5, 8, 16, zero_points=middles),
        layer("pairs", terms, 1, 2, 128),
    ]


@pytest.mark.parametrize("shape", [(1, 75), (2, 75), (2, 3, 75), (75,), (65, 75), (3, 64)])
def test_rows_in_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    everywhere([RANDOM.standard_normal(shape).astype(np.float32)], *layers(shape[-1]), tolerance=2e-6)


def test_rows_that_are_not_finite_are_as_in_the_reference() -> None:
    x = RANDOM.standard_normal((4, 75)).astype(np.float32)
    x[0, 0], x[1, 74], x[2, 40], x[2, 41] = np.inf, np.nan, np.inf, -np.inf
    check([x], *layers(75)[:3], tolerance=2e-6)
    check([x[:1]], *layers(75)[:3], tolerance=2e-6)


def test_element_wise_operators_that_follow_are_fused() -> None:
    x = RANDOM.standard_normal((1, 64)).astype(np.float32)
    net = net_of([layer("y", 64, 48), op("F.silu", "silu", "y", "z")], [x])
    session = engine.Session(net, backend="compiled", cache=None)
    session.run([x])
    kernels = [row["kernel"] for row in session.describe()["operators"] if row["type"] == "engine.BlockLinear"]
    assert kernels == ["block_product"]


@pytest.mark.parametrize("shape", [(0, 64), (2, 0, 64)])
def test_no_rows_give_an_empty_result(shape: tuple[int, ...]) -> None:
    check([np.zeros(shape, np.float32)], layer("y", 64, 9), is_whole=False)


def test_blocks_that_do_not_begin_with_a_word_run_on_the_reference() -> None:
    x = RANDOM.standard_normal((2, 15)).astype(np.float32)
    check([x], layer("y", 15, 9, 4, 6), op("F.relu", "relu", "0", "z"), is_whole=False, tolerance=1e-6)


def test_one_program_serves_any_number_of_rows() -> None:
    x = RANDOM.standard_normal((40, 75)).astype(np.float32)
    net = net_of(layers(75), [x])
    compiled, reference = (engine.Session(net, backend=name, cache=None) for name in ("compiled", "reference"))
    for rows in (40, 1, 2, 3, 17):
        for mine, theirs in zip(compiled.run([x[:rows]]), reference.run([x[:rows]]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6 * np.abs(theirs).max())


def test_weights_stay_packed_in_files_in_the_cache_and_in_memory(tmp_path: Path) -> None:
    x = RANDOM.standard_normal((1, 1024)).astype(np.float32)
    net = net_of([layer("y", 1024, 512)], [x])
    packed = 512 * 1024 // 2 + 4 * 512 * 32
    net.save(tmp_path / "model.pnnx.param", tmp_path / "model.pnnx.bin")
    assert (tmp_path / "model.pnnx.bin").stat().st_size < 1.1 * packed
    again = engine.load(tmp_path / "model.pnnx.param", tmp_path / "model.pnnx.bin")
    results = [engine.Session(net, backend="compiled", cache=None).run([x])[0]]
    for _ in range(2):
        session = engine.Session(again, backend="compiled", cache=tmp_path / "cache")
        results.append(session.run([x])[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    cached = sum(each.stat().st_size for each in (tmp_path / "cache").rglob("*") if each.is_file())
    assert packed < cached < 1.5 * packed
