"""nn.MultiheadAttention as kernels: as few linear layers as it has different operands, attention, and one back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.tensor import Array
from tests.engine.compiler.lowering.rules.products.turning import without_key_copies
from tests.engine.graph.build import F32, built, op

RANDOM = np.random.default_rng(5)
BOOL = np.dtype(np.bool_)
WIDTH, HEADS = 24, 3


@pytest.fixture(autouse=True)
def the_same_numbers_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(5))


def random(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(F32)


def module(
    operands: str, *specs: Any, outputs: str = "y", result: tuple[int, ...] | None = None, **given: Any
) -> RuntimeGraph:
    """Return a module of the named operands; each name's spec is given once."""
    names, returned = list(dict.fromkeys(operands.split())), given.pop("returned", outputs)
    weights = {
        "in_proj_weight": random(3 * WIDTH, WIDTH) / 5,
        "in_proj_bias": random(3 * WIDTH),
        "out_proj_weight": random(WIDTH, WIDTH) / 5,
        "out_proj_bias": random(WIDTH),
    }
    params = {"embed_dim": WIDTH, "num_heads": HEADS, "batch_first": True, "bias": True, **weights, **given}
    annotations = {f"_{name}": spec for name, spec in zip(names, specs, strict=True)}
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(names)),
        op("nn.MultiheadAttention", "attend", operands, outputs, **params),
        *(op("pnnx.Output", f"out_{k}", name) for k, name in enumerate(returned.split())),
        _y=result or specs[0],
        **annotations,
    )


def kernels(net: RuntimeGraph, *inputs: Array) -> list[str]:
    """Return the kernels that gave the reference's answer, but those that copy keys into columns."""
    session = Session(net, backend="compiled", cache=None, threads=2)
    for mine, theirs in zip(
        session.run(list(inputs)), Session(net, backend="reference").run(list(inputs)), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-5)
    return without_key_copies(row["kernel"] for row in session.run(list(inputs), profile=True).kernels)


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_to_itself_has_one_projection(batch_first: bool) -> None:
    shape = (2, 11, WIDTH) if batch_first else (11, 2, WIDTH)
    assert kernels(module("x", shape, batch_first=batch_first), random(*shape)) == [
        "conv",
        "attention",
        "conv",
    ]


def test_weights_that_nothing_reads_cost_nothing() -> None:
    net = module("x", (2, 11, WIDTH), outputs="y w", returned="y")
    assert kernels(net, random(2, 11, WIDTH)) == ["conv", "attention", "conv"]


def test_without_a_batch() -> None:
    assert kernels(module("x", (11, WIDTH)), random(11, WIDTH)) == [
        "conv",
        "attention",
        "conv",
    ]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("operands", "count"), [("q k", 2), ("q k v", 3), ("k q k", 3), ("q q v", 2)])
def test_operands_that_differ_have_projections_of_their_own(operands: str, count: int, batch_first: bool) -> None:
    shapes = [(2, 7, WIDTH) if batch_first else (7, 2, WIDTH)] * len({*operands.split()})
    names = kernels(module(operands, *shapes, batch_first=batch_first), *(random(*shape) for shape in shapes))
    assert names == ["conv"] * count + ["attention", "conv"]


def test_keys_and_values_of_other_widths() -> None:
    shapes = (2, 7, WIDTH), (2, 9, 10), (2, 9, 13)
    weights = {
        "q_proj_weight": random(WIDTH, WIDTH) / 5,
        "k_proj_weight": random(WIDTH, 10) / 3,
        "v_proj_weight": random(WIDTH, 13) / 3,
    }
    names = ["q", "k", "v"]
    net = built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(names)),
        op("nn.MultiheadAttention", "attend", "q k v", "y", embed_dim=WIDTH, num_heads=HEADS, kdim=10, vdim=13,
           batch_first=True, bias=False, out_proj_weight=random(WIDTH, WIDTH), **weights),
        op("pnnx.Output", "out", "y"),
        _q=shapes[0], _k=shapes[1], _v=shapes[2], _y=shapes[0],
    )  # fmt: skip
    assert kernels(net, *(random(*shape) for shape in shapes)) == ["conv"] * 3 + [
        "attention",
        "conv",
    ]


@pytest.mark.parametrize("is_bool", [True, False])
@pytest.mark.parametrize("shape", [(11, 11), (2, 11), (2 * HEADS, 11, 11)])
def test_masks(shape: tuple[int, ...], is_bool: bool) -> None:
    mask = RANDOM.random(shape) < 0.4 if is_bool else random(*shape)
    net = module("x m", (2, 11, WIDTH), TensorSpec(shape, mask.dtype))
    assert kernels(net, random(2, 11, WIDTH), mask) == ["conv", "attention", "conv"]


def test_an_attention_mask_beside_a_padding_mask() -> None:
    attention, padding = RANDOM.random((11, 11)) < 0.3, RANDOM.random((2, 11)) < 0.3
    net = module("x p a", (2, 11, WIDTH), TensorSpec((2, 11), BOOL), TensorSpec((11, 11), BOOL))
    assert kernels(net, random(2, 11, WIDTH), padding, attention) == [
        "conv",
        "attention",
        "conv",
    ]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_rows_without_a_key_are_nan_where_the_file_has_weights(is_wanted: bool) -> None:
    mask = np.zeros((11, 11), bool)
    mask[4] = True
    outputs = "y w" if is_wanted else "y"
    net = module("x m", (2, 11, WIDTH), TensorSpec((11, 11), BOOL), outputs=outputs)
    inputs = [random(2, 11, WIDTH), mask]
    session = Session(net, backend="compiled", cache=None) if not is_wanted else Session(net)
    assert bool(np.isnan(session.run(inputs)[0]).any()) is is_wanted


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("shape", [(3, 11, WIDTH), (11, WIDTH)], ids=str)
def test_keys_may_be_added_to_every_sequence(shape: tuple[int, ...], batch_first: bool) -> None:
    biases = {"add_bias_kv": True, "bias_k": random(1, 1, WIDTH), "bias_v": random(1, 1, WIDTH)}
    for given in ({"add_zero_attn": True}, biases, {"add_zero_attn": True, **biases}):
        names = kernels(module("x", shape, batch_first=batch_first, **given), random(*shape))
        assert names.count("attention") == 1


def test_its_weights_alone_may_be_asked_for() -> None:
    found = kernels(module("x", (2, 11, WIDTH), result=(2, 11, 11)), random(2, 11, WIDTH))
    assert "reference" not in found
