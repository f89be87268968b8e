"""Networks with products of bfloat16: which layers have them, their errors, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, Session, quantise
from engine.cancellation import silent
from engine.compiler.codegen.host import detect
from engine.errors import InputError, ParameterError
from engine.passes import optimise
from engine.quantisation import measurement, selection
from engine.quantisation.layers import find_layers, find_products
from engine.quantisation.measurement import LayerCost
from engine.quantisation.schemes import BFloat16, Int8
from engine.quantisation.selection import Offer
from engine.tensor import BFLOAT16
from tests.engine.graph.build import built, conv, op

RANDOM = np.random.default_rng(6)
SHAPE = (1, 40, 64)
WEIGHTS = {name: (RANDOM.standard_normal((64, 64)) / 8).astype(np.float32) for name in ("query", "key", "value")}
SAMPLES = [[RANDOM.standard_normal(SHAPE).astype(np.float32)] for _ in range(3)]
# Time of every layer in µs.
TIMES = {"bf16": 5.0, "int8": 2.0}


def attending(shape: tuple[int | None, ...] = SHAPE) -> RuntimeGraph:
    """Return self-attention that is spelled out, with a linear layer each for query, key and value."""
    linear = [
        op("nn.Linear", name, "x", name[0], in_features=64, out_features=64, bias=False, weight=weight)
        for name, weight in WEIGHTS.items()
    ]
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *linear,
        op("torch.transpose", "turn", "k", "t", dim0=1, dim1=2),
        op("torch.matmul", "scores", "q t", "s"),
        op("pnnx.Expression", "scale", "s", "u", expr="mul(@0,0.125)"),
        op("F.softmax", "softmax", "u", "w", dim=-1),
        op("torch.matmul", "mix", "w v", "y"),
        op("pnnx.Output", "out0", "y"),
        _x=shape,
    )


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Time of each layer by precision; float32 takes 10 µs. The processor has products of bfloat16."""
    measured, given = measurement.measure_layers, dict(TIMES)

    def fixed(graph: RuntimeGraph, layers: Any, scheme: Any, *others: Any) -> list[LayerCost]:
        found = measured(graph, layers, scheme, *others)
        return [
            each._replace(float_us=10.0, time_us=given.get(layer.name, given[scheme.precision]))
            for layer, each in zip(layers, found, strict=True)
        ]

    monkeypatch.setattr(selection, "measure_layers", fixed)
    monkeypatch.setattr(selection, "_times", lambda *_: (2.0, 1.0))
    monkeypatch.setattr(selection, "has_bfloat16", lambda: True)
    return given


def precisions(found: engine.QuantisedModel) -> dict[str, str]:
    return {each.name: each.precision for each in found.layers}


def marked(graph: RuntimeGraph) -> set[str]:
    return {each.name for each in graph.operators if each.allows_bfloat16}


def test_each_layer_gets_its_fastest_precision(times: dict[str, float]) -> None:
    times["value"] = 5.0
    found = quantise(attending(), SAMPLES, precision="auto", keep=0)
    assert precisions(found) == {"query": "int8", "key": "int8", "value": "bf16", "mix": "bf16"}
    assert marked(found.graph) == {"value", "scores", "mix"}
    assert [each.type for each in found.graph.operators].count("QuantizeLinear") == 1
    reasons = {each.name: (each.bf16_us, each.int8_us, each.reason) for each in found.layers}
    assert reasons["query"] == (5.0, 2.0, "")
    assert reasons["value"] == (5.0, 5.0, "not faster")
    assert reasons["mix"] == (5.0, None, "")


def test_a_layer_that_is_not_faster_stays_float32(times: dict[str, float]) -> None:
    times["mix"] = 9.9
    found = quantise(attending(), SAMPLES, precision="bf16", keep=0)
    assert precisions(found) == {"query": "bf16", "key": "bf16", "value": "bf16", "mix": "float32"}
    assert marked(found.graph) == {"query", "key", "value"}
    assert {each.int8_us for each in found.layers} == {None}


def test_a_layer_that_no_kernel_of_bfloat16_suits_is_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = RANDOM.standard_normal((5, 64)).astype(np.float32)
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Linear", "narrow", "x", "y", in_features=64, out_features=5, bias=False, weight=weight),
        op("pnnx.Output", "out0", "y"),
        _x=SHAPE,
    )
    monkeypatch.setattr(measurement, "layer_times", lambda kernels, layers: [kernels])
    monkeypatch.setattr(measurement, "measure_kernels", lambda *_: (10.0, 5.0))
    (cost,) = measurement.measure_layers(graph, find_products(graph), BFloat16(), SAMPLES, 1)
    assert (cost.noise, cost.float_us, cost.time_us) == (0.0, 10.0, 10.0)


def test_errors_of_layers_are_those_of_rounded_factors(times: dict[str, float]) -> None:
    found = quantise(attending(), SAMPLES[:1], precision="bf16", keep=0)
    x = SAMPLES[0][0].astype(np.float64)
    exact, rounded = (
        [(convert(x) @ convert(weight.astype(np.float64)).T) for weight in WEIGHTS.values()]
        for convert in (lambda each: each, lambda each: each.astype(BFLOAT16).astype(np.float64))
    )
    for layer, right, wrong in zip(found.layers, exact, rounded, strict=False):
        expected = 10 * np.log10(np.square(right).sum() / np.square(right - wrong).sum())
        assert layer.sqnr_db == (pytest.approx(expected, abs=0.1) if detect().has_bfloat16 else float("inf"))
    attention = found.layers[-1].sqnr_db
    assert 40 < attention < 90 if detect().has_bfloat16 else attention == float("inf")


def test_the_written_pair_has_the_precision_and_the_weights_of_float32(times: dict[str, float], tmp_path: Path) -> None:
    graph = attending()
    quantise(graph, SAMPLES, precision="bf16").graph.save(tmp_path / "m.pnnx.param", tmp_path / "m.pnnx.bin")
    again = engine.load(tmp_path / "m.pnnx.param", tmp_path / "m.pnnx.bin")
    assert marked(again) == {"query", "key", "value", "scores", "mix"}
    (exact,), (reread,) = (Session(each, "reference").run(SAMPLES[0]) for each in (graph, again))
    np.testing.assert_array_equal(reread, exact)
    (compiled,) = Session(again, "compiled", 1, cache=None).run(SAMPLES[0])
    (in_bf16,) = Session(graph, "compiled", 1, precision="bf16", cache=None).run(SAMPLES[0])
    np.testing.assert_array_equal(compiled, in_bf16)


def test_sizes_may_be_dynamic(times: dict[str, float]) -> None:
    graph = attending((None, None, 64))
    lengths = [RANDOM.standard_normal((1, length, 64)).astype(np.float32) for length in (40, 33, 40, 70)]
    found = quantise(graph, [[each] for each in lengths], precision="auto", keep=0.99)
    assert precisions(found) == {"query": "int8", "key": "int8", "value": "int8", "mix": "bf16"}
    (wanted,), (got,) = (Session(each, "reference").run([lengths[3]]) for each in (graph, found.graph))
    assert np.square(got - wanted).sum() < 0.01 * np.square(wanted).sum()
    assert quantise(graph, precision="bf16").quantised_layers == 4


def test_without_samples_there_is_no_budget(times: dict[str, float]) -> None:
    found = quantise(attending(), precision="bf16", keep=1)
    assert (found.kept, found.samples, found.quantised_layers) == (None, 0, 4)
    with pytest.raises(InputError, match="there are no samples"):
        quantise(attending(), precision="auto")


def test_a_processor_without_such_products_is_named(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> None:
    monkeypatch.setattr(selection, "has_bfloat16", lambda: False)
    with pytest.raises(ParameterError, match="this processor has no products of bfloat16"):
        quantise(attending(), precision="bf16")
    found = quantise(attending(), SAMPLES, precision="auto", keep=0)
    assert precisions(found) == {"query": "int8", "key": "int8", "value": "int8"}
    assert {each.bf16_us for each in found.layers} == {None}


class Lossy(selection._Network):
    """Network whose layers lose what their costs say, and no more together."""

    __slots__ = ()

    def _kept(self, chosen: Sequence[Offer]) -> float:
        return 1 - sum(each.cost.loss for each in chosen)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0.0, {"query": "int8", "key": "int8", "value": "int8"}),
        (0.996, {"query": "int8", "key": "int8", "value": "bf16"}),
        (0.9975, {"query": "int8", "key": "bf16", "value": "bf16"}),
        (0.9997, {"query": "bf16", "key": "bf16", "value": "bf16"}),
        (0.99985, {"query": "bf16"}),
        (1.0, {}),
    ],
)
def test_layers_return_to_more_bits_until_the_budget_is_kept(keep: float, expected: dict[str, str]) -> None:
    graph = attending()
    layers, scheme = find_layers(graph), Int8({}, {})
    costs = [LayerCost(10.0, 5.0, 0.0, np.zeros(64), (), 1e-4) for _ in layers]
    offers = [Offer(layer, BFloat16(), cost) for layer, cost in zip(layers, costs, strict=True)]
    offers += [
        Offer(layer, scheme, cost._replace(time_us=2.0, loss=loss))
        for layer, cost, loss in zip(layers, costs, (1e-3, 2e-3, 3e-3), strict=True)
    ]
    network: Any = Lossy(graph, graph, None, [], 1, silent)  # type: ignore[arg-type]
    chosen, kept = network.best(offers, keep)
    assert {each.layer.name: each.scheme.precision for each in chosen} == expected
    assert kept >= keep


def masked(*, returns_weights: bool) -> RuntimeGraph:
    """Return attention with a mask, whose weights are 0 for a query that sees no key."""
    ends = [op("pnnx.Output", "out1", "w")] if returns_weights else []
    return built(
        *(op("pnnx.Input", f"in{k}", "", name) for k, name in enumerate("qtvm")),
        op("torch.matmul", "scores", "q t", "s"),
        op("pnnx.Expression", "mask", "m s", "u", expr="add(@0,@1)"),
        op("F.softmax", "softmax", "u", "w", dim=-1),
        op("torch.isnan", "test", "w", "n"),
        op("torch.where", "choice", "n w", "c", labels=("condition", "other"), input=0.0),
        op("torch.matmul", "mix", "c v", "y"),
        op("pnnx.Output", "out0", "y"),
        *ends,
        _q=(2, 40, 64),
        _t=(2, 64, 40),
        _v=(2, 40, 64),
        _m=(1, 40, 40),
    )


def test_attention_is_found_in_one_operator_and_between_two_products() -> None:
    one = built(
        *(op("pnnx.Input", f"in{k}", "", name) for k, name in enumerate("qkv")),
        op("F.scaled_dot_product_attention", "one", "q k v", "y", attn_mask=None, is_causal=False),
        op("pnnx.Output", "out0", "y"),
        _q=(1, 2, 40, 32),
        _k=(1, 2, 40, 32),
        _v=(1, 2, 40, 32),
    )
    last = [find_products(graph)[-1] for graph in (one, attending(), masked(returns_weights=False))]
    assert [[op.name for op in each.operators] for each in last] == [
        ["one"],
        ["scores", "scale", "softmax", "mix"],
        ["scores", "mask", "softmax", "test", "choice", "mix"],
    ]
    assert find_products(masked(returns_weights=True)) == []


def test_layers_without_an_int8_kernel_may_multiply_bfloat16() -> None:
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        conv("mirrored", "x", "y", (40, 8), (3,), padding=(1,), padding_mode="reflect"),
        op("pnnx.Output", "out0", "y"),
        _x=(2, 40, 32),
    )
    assert find_layers(graph) == []
    assert [each.name for each in find_products(graph)] == ["mirrored"]


def multi_head(**params: Any) -> RuntimeGraph:
    shapes = {"in_proj_weight": (96, 32), "in_proj_bias": (96,), "out_proj.weight": (32, 32), "out_proj.bias": (32,)}
    arrays = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    params |= {"embed_dim": 32, "num_heads": 2, "batch_first": True, "bias": True, "kdim": 32, "vdim": 32}
    heads = op("nn.MultiheadAttention", "heads", "x", "y", add_bias_kv=False, add_zero_attn=False, **params, **arrays)
    return built(op("pnnx.Input", "in0", "", "x"), heads, op("pnnx.Output", "out0", "y"), _x=(1, 40, 32))


@pytest.mark.parametrize(("params", "expected"), [({"precision": "bf16"}, True), ({}, False)])
def test_the_operators_that_one_stands_for_have_its_precision(params: dict[str, Any], expected: bool) -> None:
    found = optimise(multi_head(**params))[0].operators
    parts = [each for each in found if "inear" in each.type or "ttention" in each.type]
    assert len(parts) > 2 and {each.allows_bfloat16 for each in parts} == {expected}
