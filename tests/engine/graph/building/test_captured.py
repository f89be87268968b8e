"""Modules are called with what they were called with, whatever parameters they share."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import RuntimeGraph, Session
from tests.engine.graph.build import INPUT, built, op

WEIGHT = np.arange(9, dtype=np.float32).reshape(3, 3)
OTHER = np.ones((3, 3), np.float32)
OUTPUT = op("pnnx.Output", "out", "9")


def linear(inputs: str, **given: Any) -> Any:
    return op("nn.Linear", "head", inputs, "9", **{"bias": False, "in_features": 3, "out_features": 3, **given})


def constant(name: str, data: np.ndarray) -> Any:
    return op("pnnx.Attribute", name, "", name, data=data)


def inputs_of(graph: RuntimeGraph) -> list[str]:
    (head,) = (each for each in graph.operators if each.name == "head")
    return [each.name for each in head.inputs]


def test_a_weight_that_is_handed_over_again_is_left_out_and_so_is_an_unused_constant() -> None:
    net = built(INPUT, constant("w", WEIGHT), linear("w 0", weight=WEIGHT), OUTPUT, _0=(2, 3), _w=(3, 3))
    assert inputs_of(net) == ["0"]
    assert [each.type for each in net.operators] == ["pnnx.Input", "nn.Linear", "pnnx.Output"]
    assert list(net.describe()["operands"]) == ["0", "9"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(Session(net, backend="reference").run([x])[0], x @ WEIGHT.T)


def test_a_constant_that_others_use_stays() -> None:
    added = op("pnnx.Expression", "add", "0 w", "8", expr="add(@0,@1)")
    net = built(INPUT, constant("w", WEIGHT), added, linear("w 8", weight=WEIGHT), OUTPUT, _0=(2, 3, 3), _w=(3, 3))
    assert inputs_of(net) == ["8"]
    assert "w" in [each.name for each in net.operators]


def test_a_module_that_is_called_with_a_constant_is_called_with_it() -> None:
    own = built(
        INPUT, constant("w", WEIGHT), linear("w", weight=WEIGHT), OUTPUT, op("nn.ReLU", "r", "0", "1"), _0=(2, 3)
    )
    twice = built(
        INPUT, constant("w", WEIGHT), constant("x", WEIGHT), linear("w x", weight=WEIGHT), OUTPUT,
        op("nn.ReLU", "r", "0", "1"), _0=(2, 3),
    )  # fmt: skip
    assert (inputs_of(own), inputs_of(twice)) == (["w"], ["x"])


def test_a_constant_of_the_shape_of_a_weight_but_of_other_values_is_an_operand() -> None:
    state = np.ones((1, 4), np.float32)
    given = {
        "input_size": 4,
        "hidden_size": 4,
        "num_layers": 1,
        "bias": False,
        "batch_first": False,
        "bidirectional": False,
    }
    weights = {"weight_ih_l0": np.ones((16, 4), np.float32), "weight_hh_l0": np.ones((16, 4), np.float32)}
    lstm = op("nn.GRU", "head", "0 h", "9", **given, **{k: v[:12] for k, v in weights.items()})
    net = built(INPUT, constant("h", state), lstm, OUTPUT, _0=(5, 4))
    assert inputs_of(net) == ["0", "h"]


def test_functions_keep_their_operands() -> None:
    function = op("F.linear", "head", "0 w", "9", labels=("input", "weight"))
    net = built(INPUT, constant("w", OTHER), function, OUTPUT, _0=(2, 3))
    assert inputs_of(net) == ["0", "w"]


def test_a_memory_that_is_attended_to_comes_behind_what_asks() -> None:
    """The result has as many rows as there are questions; where a learned question fits as well, it is one."""
    weights = {"in_proj_weight": np.ones((12, 4), np.float32), "out_proj.weight": np.ones((4, 4), np.float32)}
    memory = np.ones((1, 6, 4), np.float32)
    for rows, expected in ((5, ["0", "m"]), (6, ["m", "0"])):
        head = op("nn.MultiheadAttention", "head", "m 0", "9", embed_dim=4, num_heads=2, batch_first=True, **weights)
        shapes = {"_0": (1, rows, 4), "_m": (1, 6, 4), "_9": (1, rows, 4)}
        assert inputs_of(graph_of(constant("m", memory), head, shapes)) == expected


def test_what_the_converter_has_computed_stands_where_the_model_has_it() -> None:
    given = {"input_size": 4, "hidden_size": 4, "num_layers": 1, "bias": False, "batch_first": False}
    weights = {"weight_ih_l0": np.ones((4, 4), np.float32), "weight_hh_l0": np.zeros((4, 4), np.float32)}
    sequence = np.ones((1, 2, 4), np.float32)
    for name, expected in (("pnnx_fold_9", ["pnnx_fold_9", "0"]), ("state", ["0", "state"])):
        head = op("nn.RNN", "head", f"{name} 0", "9", **given, **weights)
        shapes = {"_0": (1, 2, 4), f"_{name}": (1, 2, 4), "_9": (1, 2, 4)}
        assert inputs_of(graph_of(constant(name, sequence), head, shapes)) == expected


def graph_of(made: Any, head: Any, shapes: dict[str, tuple[int, ...]]) -> RuntimeGraph:
    return built(INPUT, made, head, OUTPUT, **shapes)
