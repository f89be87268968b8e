"""Recurrent networks as kernels: all supported arguments and outputs agree with the reference."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import describe, detect
from engine.compiler.lowering.rules.recurrent import kernels as recurrent_kernels
from engine.options import Options
from engine.pnnx import Attribute, Operator
from engine.tensor import Array
from tests.engine.compiler.doubling import doubled
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.graph.build import F32, INPUT, built, op
from tests.nightly import IS_NIGHTLY

GATES = {"nn.LSTM": 4, "nn.GRU": 3, "nn.RNN": 1}
STATES = {"nn.LSTM": 2, "nn.GRU": 1, "nn.RNN": 1}


def numbers(seed: int, *shape: int) -> Array:
    values: Array = np.random.default_rng([seed, *shape]).standard_normal(shape) / np.sqrt(shape[-1])
    return values.astype(F32)


def network(
    type: str, width: int, units: int, *, layers: int = 1, ways: int = 1, bias: bool = True, proj_size: int = 0,
    inputs: str = "0", outputs: str = "1", **given: Any,
) -> Operator:  # fmt: skip
    rows, state = GATES[type] * units, proj_size or units
    params: dict[str, Any] = {"input_size": width, "hidden_size": units, "num_layers": layers, "bias": bias}
    params |= {"bidirectional": ways == 2, **({"proj_size": proj_size} if proj_size else {}), **given}
    for k, end in enumerate(f"l{layer}{suffix}" for layer in range(layers) for suffix in ("", "_reverse")[:ways]):
        params[f"weight_ih_{end}"] = numbers(k, rows, state * ways if k >= ways else width)
        params[f"weight_hh_{end}"] = numbers(k, rows, state)
        if bias:
            params |= {f"bias_{part}_{end}": numbers(k, rows, 1)[:, 0] for part in ("ih", "hh")}
        if proj_size:
            params[f"weight_hr_{end}"] = numbers(k, proj_size, units)
    return op(type, "network", inputs, outputs, **params)


def rounded(layer: Operator, rounds: str, dtype: str = "int8") -> Operator:
    """Return a network with the same weights as integers, which rounds what it multiplies."""
    stored = dict(layer.attributes)
    for name, each in layer.attributes.items():
        if name.startswith(("weight_ih", "weight_hh")):
            scale = np.maximum(np.abs(each.data).max(1), 1e-9) / np.float32(127)
            codes = np.rint(each.data / scale[:, None]).astype(dtype)
            stored[name] = Attribute(codes.shape, codes.dtype, codes)
            stored[name.replace("weight", "scale")] = Attribute(scale.shape, scale.dtype, scale)
    return replace(layer, attributes=stored, params={**layer.params, "rounds": rounds})


def graph(*operators: Operator, results: str, **shapes: tuple[int, ...]) -> RuntimeGraph:
    names = [name.removeprefix("_") for name in shapes]
    inputs = [op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(names)]
    ends = [op("pnnx.Output", f"pnnx_output_{k}", name) for k, name in enumerate(results.split())]
    return built(*inputs, *operators, *ends, **shapes)


def check_threads(net: RuntimeGraph, x: Array) -> None:
    """Require bit-identical results of many runs on several threads and on one thread."""

    def run(threads: int) -> list[Array]:
        session = Session(net, backend="compiled", cache=None, threads=threads)
        first = session.run([x])
        for _ in range(300):
            for mine, theirs in zip(session.run([x]), first, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        return list(first)

    alone = run(1)
    for threads in (2, 3, 7):
        for mine, theirs in zip(run(threads), alone, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def check(net: RuntimeGraph, *shapes: tuple[int, ...], name: str = "network", rounds: bool = False) -> Session:
    inputs = [numbers(k, *shape) for k, shape in enumerate(shapes)]
    wanted = Session(net, backend="reference").run(inputs)
    session = Session(net, backend="compiled", cache=None, threads=2)
    for _ in range(2):
        for mine, theirs in zip(session.run(inputs), wanted, strict=True):
            assert mine.shape == theirs.shape
            if rounds:  # a number halfway between two bytes may become either, which changes what follows
                assert np.quantile(np.abs(mine - theirs), 0.9) < 1e-5 and np.abs(mine - theirs).max() < 0.01
            else:
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    (row,) = [row for row in session.describe()["operators"] if row["name"] == name]
    assert row["kernel"] != "reference", row
    return session


@pytest.mark.parametrize("seed", range(40))
def test_any_network_agrees_with_the_reference(seed: int) -> None:
    check_any(seed)


@pytest.mark.parametrize("seed", range(40, 60))
def test_any_network_of_integers_agrees_with_the_reference(seed: int) -> None:
    check_any(seed, rounds=("each", "all")[seed % 2], dtype=("int8", "int8", "int16")[seed % 3])


def check_any(seed: int, rounds: str = "", dtype: str = "") -> None:
    random = Random(seed)
    type = random.choice(list(GATES))
    width, units, ways, layers = (
        random.randint(1, 40),
        random.randint(1, 70),
        random.randint(1, 2),
        random.randint(1, 3),
    )
    given: dict[str, Any] = {"batch_first": random.random() < 0.5, "bias": random.random() < 0.7}
    if type == "nn.LSTM" and units > 1 and random.random() < 0.4:
        given["proj_size"] = random.randint(1, units - 1)
    if type == "nn.RNN":
        given["nonlinearity"] = random.choice(("tanh", "relu"))
    steps, batch = random.choice((1, 2, 3, 17, 40)), random.choice((None, 1, 2, 3, 7))
    lead = (steps,) if batch is None else (batch, steps) if given["batch_first"] else (steps, batch)
    state = (layers * ways, *(() if batch is None else (batch,)))
    widths = [given.get("proj_size", 0) or units, units][: STATES[type]]
    takes = random.random() < 0.5
    shapes = [(*lead, width), *([(*state, each) for each in widths] if takes else [])]
    names = ["x", "h", "c"][: len(shapes)]
    results = {"y": (*lead, widths[0] * ways), **{f"f{k}": (*state, each) for k, each in enumerate(widths)}}
    outputs = " ".join(results) if random.random() < 0.6 else "y"
    layer = network(type, width, units, layers=layers, ways=ways, inputs=" ".join(names), outputs=outputs, **given)
    if rounds:
        layer = rounded(layer, rounds, dtype)
    annotated = {f"_{name}": shape for name, shape in zip(names, shapes, strict=True)}
    annotated |= {f"_{name}": results[name] for name in outputs.split()}
    inputs = [op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(names)]
    ends = [op("pnnx.Output", f"pnnx_output_{k}", name) for k, name in enumerate(outputs.split())]
    check(built(*inputs, layer, *ends, **annotated), *shapes, rounds=bool(rounds))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("type", GATES)
def test_every_level_agrees_with_the_reference(level: str, type: str) -> None:
    net = graph(network(type, 21, 37, layers=2, ways=2), results="1", _0=(9, 3, 21))
    x = numbers(0, 9, 3, 21)
    (found,) = CompiledGraph(net, Options(threads=2), describe(level)).run([x])
    (wanted,) = Session(net, backend="reference").run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("type", GATES)
def test_one_item_of_a_batch_does_not_change_how_another_is_rounded(type: str) -> None:
    layer, x = rounded(network(type, 6, 20, ways=2), "each"), numbers(0, 9, 3, 6)
    (together,) = CompiledGraph(graph(layer, results="1", _0=(9, 3, 6)), Options(threads=1)).run([x])
    alone = CompiledGraph(graph(layer, results="1", _0=(9, 1, 6)), Options(threads=1))
    for k in range(3):
        np.testing.assert_array_equal(together[:, k], alone.run([x[:, k : k + 1]])[0][:, 0])


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_item_when_rows_are_rounded(number: float) -> None:
    layer, x = rounded(network("nn.LSTM", 6, 20), "each"), numbers(0, 9, 3, 6)
    net = graph(layer, results="1", _0=(9, 3, 6))
    (exact,) = CompiledGraph(net, Options(threads=1)).run([x])
    x[4, 1, 2] = number
    (found,) = CompiledGraph(net, Options(threads=1)).run([x])
    assert np.isnan(found[4:, 1]).all()
    np.testing.assert_array_equal(found[:, ::2], exact[:, ::2])
    np.testing.assert_array_equal(found[:4], exact[:4])


@pytest.mark.parametrize("type", GATES)
@pytest.mark.parametrize(("width", "units", "batch"), [(64, 64, 1), (21, 37, 3), (30, 90, 2)])
def test_bfloat16_is_used_where_it_is_asked_for(type: str, width: int, units: int, batch: int) -> None:
    net = graph(network(type, width, units, layers=2, ways=2), results="1", _0=(9, batch, width))
    x = numbers(0, 9, batch, width)
    (wanted,) = Session(net, backend="reference").run([x])
    session = Session(net, precision="bf16", cache=None)
    (found,) = session.run([x])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.02)
    assert (np.abs(found - wanted).max() > 1e-4) == detect().has_bfloat16


@pytest.mark.parametrize(("rounds", "dtype"), [("", "int8"), ("each", "float32")])
def test_integers_times_floats_are_left_to_the_reference(rounds: str, dtype: str) -> None:
    layer = rounded(network("nn.LSTM", 5, 7), rounds, dtype)
    session = Session(graph(layer, op("nn.ReLU", "relu", "1", "2"), results="2", _0=(4, 2, 5)), cache=None)
    session.run([numbers(0, 4, 2, 5)])
    (row,) = [row for row in session.describe()["operators"] if row["name"] == "network"]
    assert "multiply two floats, or two integers" in row["why"]


@pytest.mark.parametrize("type", GATES)
@pytest.mark.parametrize("steps", [20, 100])
def test_large_networks_agree_too(type: str, steps: int) -> None:
    net = graph(network(type, 64, 128, layers=2, ways=2, batch_first=True), results="1", _0=(1, steps, 64))
    check(net, (1, steps, 64))


@pytest.mark.parametrize("order", ["y", "h", "h c", "c h y", "y c"])
def test_unused_results_are_not_computed(order: str) -> None:
    shapes = {"y": (5, 2, 8), "h": (2, 2, 4), "c": (2, 2, 9)}
    layer = network("nn.LSTM", 3, 9, ways=2, proj_size=4, outputs=order)
    annotated = {f"_{name}": shapes[name] for name in order.split()}
    ends = [op("pnnx.Output", f"pnnx_output_{k}", name) for k, name in enumerate(order.split())]
    check(built(INPUT, layer, *ends, _0=(5, 2, 3), **annotated), (5, 2, 3))


@pytest.mark.parametrize("type", GATES)
def test_operands_may_be_turned_and_results_joined(type: str) -> None:
    net = built(
        INPUT,
        op("Tensor.permute", "turn", "0", "t", dims=(2, 0, 1)),
        network(type, 6, 5, inputs="t", outputs="y h"),
        op("torch.cat", "join", "y h", "j", dim=0),
        op("Tensor.permute", "back", "j", "2", dims=(1, 2, 0)),
        op("nn.ReLU", "relu", "2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(3, 6, 7), _t=(7, 3, 6), _y=(7, 3, 5), _h=(1, 3, 5),
    )  # fmt: skip
    check(net, (3, 6, 7))


def test_a_result_may_lie_between_the_channels_of_an_image() -> None:
    net = built(
        INPUT,
        network("nn.GRU", 8, 8, batch_first=True),
        op("torch.cat", "join", "1 0", "2", dim=1),
        op("nn.Conv1d", "conv", "2", "3", in_channels=10, out_channels=4, kernel_size=(3,), stride=(1,), padding=(1,),
           dilation=(1,), groups=1, padding_mode="zeros", bias=False, weight=numbers(1, 4, 10, 3)),
        op("pnnx.Output", "out", "3"),
        _0=(2, 5, 8), _1=(2, 5, 8),
    )  # fmt: skip
    check(net, (2, 5, 8))


@pytest.mark.parametrize("type", GATES)
def test_a_long_sequence_is_done_in_pieces(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_kernels, "PIECE_FLOPS", 40_000)
    layer = network(type, 5, 24, ways=2, layers=2, outputs="y h")
    net = built(INPUT, layer, op("pnnx.Output", "a", "y"), op("pnnx.Output", "b", "h"),
                _0=(31, 2, 5), _y=(31, 2, 48), _h=(4, 2, 24))  # fmt: skip
    session = check(net, (31, 2, 5))
    kinds = [row["kernel"] for row in session.run([numbers(0, 31, 2, 5)], profile=True).kernels]
    assert kinds.count("recurrent") > 4


def onnx(type: str, x: tuple[int, ...], units: int, results: dict[str, tuple[int, ...]], **given: Any) -> RuntimeGraph:
    """Return a network of one layer; the last two operands are its states if ``states`` is set."""
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[type], 2 if given.get("direction") == "bidirectional" else 1
    shapes: dict[str, tuple[int, ...]] = {"w": (ways, gates * units, x[-1]), "r": (ways, gates * units, units)}
    shapes |= {"b": (ways, 2 * gates * units)} if given.pop("has_bias", True) else {}
    stored = [op("pnnx.Attribute", name, "", name, data=numbers(k, *shape)) for k, (name, shape) in
              enumerate(shapes.items())]  # fmt: skip
    state = (x[0], ways, units) if given.get("layout") else (ways, x[1], units)
    states = ["h", "c"][: 2 if type == "LSTM" else 1] if given.pop("has_states", False) else []
    inputs = [op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(["x", *states])]
    layer = op(type, "network", " ".join(["x", *shapes, *states]), " ".join(results), hidden_size=units, **given)
    ends = [op("pnnx.Output", f"pnnx_output_{k}", name) for k, name in enumerate(results)]
    annotated = {"x": x, **shapes, **dict.fromkeys(states, state), **results}
    return built(*inputs, *stored, layer, *ends, **{f"_{name}": shape for name, shape in annotated.items()})


@pytest.mark.parametrize("type", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("has_bias", [True, False])
def test_onnx_has_its_own_order_of_gates_and_dimensions(type: str, direction: str, layout: int, has_bias: bool) -> None:
    ways, given = 2 if direction == "bidirectional" else 1, {"linear_before_reset": True} if type == "GRU" else {}
    x, y, h = ((3, 7, 5), (3, 7, ways, 9), (3, ways, 9)) if layout else ((7, 3, 5), (7, ways, 3, 9), (ways, 3, 9))
    results = {"y": y, "yh": h, **({"yc": h} if type == "LSTM" else {})}
    net = onnx(type, x, 9, results, direction=direction, layout=layout, has_bias=has_bias, has_states=True, **given)
    check(net, x, *[h] * (2 if type == "LSTM" else 1))


def test_an_onnx_network_may_have_a_relu() -> None:
    check(onnx("RNN", (7, 3, 5), 9, {"y": (7, 1, 3, 9)}, activations=("Relu",)), (7, 3, 5))


@pytest.mark.parametrize(
    ("type", "given", "why"),
    [
        ("LSTM", {"clip": 0.5}, "there is no kernel for clipping"),
        ("LSTM", {"input_forget": True}, "there is no kernel for coupled gates"),
        ("LSTM", {"activations": ("Sigmoid", "Tanh", "Relu")}, "there is no kernel for its activations"),
        ("GRU", {}, "there is no kernel for a reset before the product"),
    ],
)
def test_layers_without_a_kernel_are_left_to_the_reference(type: str, given: dict[str, Any], why: str) -> None:
    net = onnx(type, (7, 3, 5), 9, {"y": (7, 1, 3, 9)}, **given)
    session = Session(net, backend="compiled", cache=None)
    session.run([numbers(0, 7, 3, 5)])
    (row,) = [row for row in session.describe()["operators"] if row["name"] == "network"]
    assert row["kernel"] == "reference"
    assert why in row["why"]


@pytest.mark.parametrize("type", list(GATES))
@pytest.mark.parametrize(("batch", "units"), [(1, 19), (3, 40), (1, 300)], ids=str)
def test_networks_of_doubles_keep_their_digits(type: str, batch: int, units: int) -> None:
    net = network(type, 11, units, layers=2, ways=2, batch_first=True)
    source = graph(net, results="1", _0=(batch, 9, 11)).source
    x = np.random.default_rng(units).standard_normal((batch, 9, 11))
    whole = doubled(source)
    (wanted,) = Session(whole, backend="reference").run([x])
    for level in LEVELS if IS_NIGHTLY or units == 19 else LEVELS[:1]:
        compiled = CompiledGraph(whole, Options(threads=1), describe(level))
        (found,) = compiled.run([guarded_array(x, dtype="float64")])
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
    session = Session(whole, backend="compiled", cache=None)
    session.run([x])
    assert not [row for row in session.describe()["operators"] if row.get("why")]
