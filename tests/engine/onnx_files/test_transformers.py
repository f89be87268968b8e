"""Attention of ONNX and onnxruntime where it is one there are kernels for, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.layers.onnx.attention.grouped_attention import GroupQueryAttention
from tests.engine.onnx_files.models import expected, model, node, save, value

RANDOM = np.random.default_rng(2)
MICROSOFT = "com.microsoft"


def f(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ran(folder: Path, proto: Any, feeds: dict[str, Any], backend: Any = "reference") -> Any:
    return engine.Session(engine.load(save(folder, proto)), backend=backend, cache=None).run(feeds)


def fused(inputs: list[str], feeds: dict[str, Any], type: str = "MultiHeadAttention", **attributes: Any) -> Any:
    nodes = [node(type, inputs, ["y"], domain=MICROSOFT, **attributes)]
    values = [value(name, each.shape) for name, each in feeds.items()]
    return model(nodes, values, [value("y", None)], domains=[MICROSOFT])


def test_packed_queries_keys_and_values_are_those_apart(tmp_path: Path) -> None:
    q, k, v = (f(2, 3, 2, 4) for _ in range(3))
    apart = {name: each.reshape(2, 3, 8) for name, each in zip("qkv", (q, k, v), strict=True)}
    (wanted,) = ran(tmp_path, fused(["q", "k", "v"], apart, num_heads=2), apart)
    whole = {"q": np.stack([q, k, v], axis=3)}
    np.testing.assert_array_equal(ran(tmp_path, fused(["q"], whole, num_heads=2), whole)[0], wanted)
    pair = {"q": apart["q"], "k": np.stack([k, v], axis=3)}
    np.testing.assert_array_equal(ran(tmp_path, fused(["q", "k"], pair, num_heads=2), pair)[0], wanted)


def decoder() -> tuple[Any, dict[str, Any]]:
    """Queries and keys turned, keys and values of earlier steps in front, causal, heads in groups."""
    nodes = [
        node("RotaryEmbedding", ["q", "cos", "sin", "places"], ["tq"], num_heads=4),
        node("RotaryEmbedding", ["k", "cos", "sin", "places"], ["tk"], num_heads=2, interleaved=1),
        node("Attention", ["tq", "tk", "v", "", "pk", "pv"], ["y", "keys", "values"], is_causal=1, q_num_heads=4,
             kv_num_heads=2),
    ]  # fmt: skip
    feeds = {"q": f(1, 3, 32), "k": f(1, 3, 16), "v": f(1, 3, 16), "pk": f(1, 2, 5, 8), "pv": f(1, 2, 5, 8)}
    inputs = [*(value(name, each.shape) for name, each in feeds.items()), value("places", [1, 3], 7)]
    outputs = [value(name, None) for name in ("y", "keys", "values")]
    proto = model(nodes, inputs, outputs, {"cos": f(9, 4), "sin": f(9, 4)}, opset=23)
    return proto, feeds | {"places": np.array([[5, 6, 7]])}


def test_attention_of_the_standard_has_its_kernel(tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    proto, feeds = decoder()
    session = engine.Session(engine.load(save(tmp_path, proto)), "compiled", cache=None)
    for found, wanted in zip(session.run(feeds), expected(proto, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    kernels = {row["type"]: row.get("kernel") for row in session.describe()["operators"]}
    assert kernels["F.scaled_dot_product_attention"] == "attention"
    assert not {"Attention", "RotaryEmbedding"} & kernels.keys()


@pytest.mark.parametrize("sizes", [(3, 6), (19, 0), (1, 40)], ids=str)
@pytest.mark.parametrize("is_masked", [False, True])
def test_keys_behind_a_position_are_hidden_for_all_sizes(
    sizes: tuple[int, int], is_masked: bool, tmp_path: Path
) -> None:
    pytest.importorskip("llvmlite")
    new, past = sizes
    inputs = ["x", "x", "x", "m" if is_masked else "", "pk", "pv"]
    feeds = {"x": f(1, 2, new, 4), "m": f(new, new + past), "pk": f(1, 2, past, 4), "pv": f(1, 2, past, 4)}
    shapes = {"x": [1, 2, "L", 4], "m": [new, new + past], "pk": [1, 2, "P", 4], "pv": [1, 2, "P", 4]}
    if is_masked:
        shapes = {name: each.shape for name, each in feeds.items()}
    names = [name for name in feeds if name in inputs]
    calls = [node("Attention", inputs, ["y", "k", "v"], is_causal=1)]
    proto = model(calls, [value(name, shapes[name]) for name in names], [value("y", None)], opset=23)
    wanted = expected(proto, {name: feeds[name] for name in names})[0]
    for backend in ("reference", "compiled"):
        (found,) = ran(tmp_path, proto, {name: feeds[name] for name in names}, backend)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [0, -1, 3, 2**31 - 1])
def test_heads_that_do_not_divide_the_width_are_refused_with_their_place(tmp_path: Path, heads: int) -> None:
    feeds = {name: f(1, 3, 8) for name in "qkv"}
    with pytest.raises(engine.UnsupportedOperatorError, match="MultiHeadAttention"):
        engine.load(save(tmp_path, fused(["q", "k", "v"], feeds, num_heads=heads)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lengths": [-7, 2]}, "numbers of keys"),
        ({"lengths": [2**31 - 1, 2]}, "numbers of keys"),
        ({"lengths": [2]}, "seqlens_k"),
        ({"total": 2**31 - 1, "lengths": [2**31 - 2] * 2}, "earlier steps"),
        ({"total": 0}, "numbers of keys"),
        ({"places": [[9, 9, 9]] * 2}, "outside the cache"),
        ({"places": [[-1, 0, 0]] * 2}, "outside the cache"),
        ({"key": (2, 3, 9)}, "key or value"),
        ({"query": (2, 3, 33)}, "does not divide"),
        ({"bias": (0, 4, 3, 3)}, "attention_bias"),
    ],
)
def test_grouped_attention_refuses_what_does_not_fit(changes: dict[str, Any], problem: str) -> None:
    layer = GroupQueryAttention(num_heads=4, kv_num_heads=2, do_rotary=True)
    key = f(*changes.get("key", (2, 3, 16)))
    bias = f(*changes["bias"]) if "bias" in changes else None
    with pytest.raises(engine.EngineError, match=problem):
        layer.forward(
            f(*changes.get("query", (2, 3, 32))), key, key, None, None, np.array(changes.get("lengths", [2, 2])),
            np.array(changes.get("total", 3)), f(9, 4), f(9, 4), np.array(changes.get("places", [[0, 1, 2]] * 2)), bias,
        )  # fmt: skip


@pytest.mark.parametrize("heads", [(0, 1), (4, 0), (3, 2), (-4, -2), (4, 2**31 - 1)])
def test_groups_that_do_not_divide_the_heads_are_refused(heads: tuple[int, int]) -> None:
    with pytest.raises(engine.ParameterError, match="groups"):
        GroupQueryAttention(num_heads=heads[0], kv_num_heads=heads[1])
