"""Patterns that an exporter spells out become one operator of PNNX with the same result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import expected, model, node, save, value


def _types(folder: Path, proto: Any, feeds: dict[str, Any]) -> Counter[str]:
    """Types of the graph, which gives what the package's evaluator does, both ways."""
    graph = engine.load(save(folder, proto))
    for backend in ("reference", "compiled"):
        found = engine.Session(graph, backend=backend, threads=1, cache=None).run(feeds)  # type: ignore[arg-type]
        for mine, theirs in zip(found, expected(proto, feeds), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    return Counter(op.type for op in graph.operators if not op.type.startswith("pnnx."))


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _product(bias: np.ndarray, *, twice: bool = False) -> Any:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["b", "m"], ["y"])]
    outputs = [value("y", None)]
    if twice:
        nodes.append(node("Neg", ["m"], ["z"]))
        outputs.append(value("z", None))
    return model(nodes, [value("x", [2, 3, 5])], outputs, {"w": _random(5, 4), "b": bias})


@pytest.mark.parametrize("shape", [(4,), (1, 4), (1, 1, 4)])
def test_a_product_and_a_stored_vector_are_a_linear_layer(tmp_path: Path, shape: tuple[int, ...]) -> None:
    assert _types(tmp_path, _product(_random(*shape)), {"x": _random(2, 3, 5)}) == {"nn.Linear": 1}


@pytest.mark.parametrize("shape", [(1, 1, 1, 4), (3, 4), (1,), (2, 1, 1)])
def test_what_is_no_bias_is_added_by_itself(tmp_path: Path, shape: tuple[int, ...]) -> None:
    graph = engine.load(save(tmp_path, _product(_random(*shape))))
    assert [op.params["bias"] for op in graph.operators if op.type == "nn.Linear"] == [False]
    _types(tmp_path, _product(_random(*shape)), {"x": _random(2, 3, 5)})


def test_a_product_that_others_use_stays(tmp_path: Path) -> None:
    graph = engine.load(save(tmp_path, _product(_random(4), twice=True)))
    assert [op.params["bias"] for op in graph.operators if op.type == "nn.Linear"] == [False]
    _types(tmp_path, _product(_random(4), twice=True), {"x": _random(2, 3, 5)})


def _shuffle(sizes: list[int], order: list[int]) -> Any:
    nodes = [
        node("Reshape", ["x", "apart"], ["a"]),
        node("Transpose", ["a"], ["t"], perm=order),
        node("Reshape", ["t", "together"], ["y"]),
    ]
    weights = {"apart": np.array(sizes), "together": np.array([2, 6, 3, 3])}
    return model(nodes, [value("x", [2, 6, 3, 3])], [value("y", None)], weights)


def test_turned_groups_of_channels_are_a_channel_shuffle(tmp_path: Path) -> None:
    proto = _shuffle([2, 3, 2, 3, 3], [0, 2, 1, 3, 4])
    assert _types(tmp_path, proto, {"x": _random(2, 6, 3, 3)}) == {"nn.ChannelShuffle": 1}


_OTHERS = (
    ([2, 3, 2, 3, 3], [0, 1, 2, 4, 3]),
    ([2, 3, 2, 9, 1], [0, 2, 1, 3, 4]),
    ([1, 4, 3, 9, 1], [0, 2, 1, 3, 4]),
)


@pytest.mark.parametrize(("sizes", "order"), _OTHERS)
def test_other_turns_stay_turns(tmp_path: Path, sizes: list[int], order: list[int]) -> None:
    assert "nn.ChannelShuffle" not in _types(tmp_path, _shuffle(sizes, order), {"x": _random(2, 6, 3, 3)})


def _attention(mask: np.ndarray | None, *, scale: float = 0.5, keys: bool = False) -> Any:
    nodes = [
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("Mul", ["q", "s"], ["qs"]),
        node("Div" if keys else "Identity", ["kt", "t"] if keys else ["kt"], ["ks"]),
        node("MatMul", ["qs", "ks"], ["p"]),
        *([node("Add", ["p", "m"], ["a"])] if mask is not None else []),
        node("Softmax", ["a" if mask is not None else "p"], ["w"], axis=-1),
        node("MatMul", ["w", "v"], ["y"]),
    ]
    weights = {"s": np.float32(scale), "t": np.float32(1.7)} | ({"m": mask} if mask is not None else {})
    return model(nodes, [value(name, [1, 2, 3, 4]) for name in "qkv"], [value("y", None)], weights)


_CAUSAL = np.where(np.tri(3, dtype=bool), np.float32(0), np.float32(-np.inf))


@pytest.mark.parametrize("mask", [None, _CAUSAL, _random(1, 2, 3, 3)], ids=["none", "causal", "stored"])
@pytest.mark.parametrize("keys", [False, True])
def test_scaled_products_around_a_softmax_are_one_kernel(tmp_path: Path, mask: np.ndarray | None, keys: bool) -> None:
    feeds = dict(zip("qkv", _random(3, 1, 2, 3, 4), strict=True))
    proto = _attention(mask, scale=0.3, keys=keys)
    session = engine.Session(engine.load(save(tmp_path, proto)), threads=1, cache=None)
    np.testing.assert_allclose(session.run(feeds)[0], expected(proto, feeds)[0], rtol=1e-4, atol=1e-5)
    kernels = Counter(row.get("kernel") for row in session.describe()["operators"])
    assert kernels["attention"] == 1 and not kernels["map"]


def test_a_mask_that_leaves_a_row_nothing_gives_nan(tmp_path: Path) -> None:
    feeds = dict(zip("qkv", _random(3, 1, 2, 3, 4), strict=True))
    session = engine.Session(engine.load(save(tmp_path, _attention(np.full((3, 3), -np.inf, np.float32)))), threads=1)
    assert np.isnan(session.run(feeds)[0]).all()


def _norm(kind: str, weights: dict[str, np.ndarray], *, is_stored: bool, opset: int = 21, **attributes: Any) -> Any:
    nodes = [node(kind, ["x", *weights], ["y"], epsilon=1e-3, **attributes)]
    inputs = [value("x", [2, 6, 5, 4]), *([] if is_stored else [value(name, [6]) for name in weights])]
    return model(nodes, inputs, [value("y", None)], weights if is_stored else {}, opset=opset)


@pytest.mark.parametrize(
    "kind, attributes, stored, told",
    [
        ("InstanceNormalization", {}, "nn.InstanceNorm2d", "F.instance_norm"),
        ("GroupNormalization", {"num_groups": 3}, "nn.GroupNorm", "F.group_norm"),
    ],
)
def test_norms_are_those_that_have_kernels_whether_their_weights_are_stored_or_told(
    tmp_path: Path, kind: str, attributes: dict[str, Any], stored: str, told: str
) -> None:
    weights, x = {"s": _random(6), "b": _random(6) + 1}, {"x": _random(2, 6, 5, 4)}
    assert _types(tmp_path, _norm(kind, weights, is_stored=True, **attributes), x) == {stored: 1}
    assert _types(tmp_path, _norm(kind, weights, is_stored=False, **attributes), x | weights) == {told: 1}


def test_weights_that_change_nothing_are_none(tmp_path: Path) -> None:
    weights = {"s": np.ones(6, np.float32), "b": np.zeros(6, np.float32)}
    proto = _norm("InstanceNormalization", weights, is_stored=True)
    assert _types(tmp_path, proto, {"x": _random(2, 6, 5, 4)}) == {"nn.InstanceNorm2d": 1}
    graph = engine.load(save(tmp_path, proto))
    assert [(op.params["affine"], op.attributes) for op in graph.operators if "Norm" in op.type] == [(False, {})]


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_layer_norm_needs_no_bias(tmp_path: Path, axis: int) -> None:
    weights = {"s": _random(*(3, 5)[-1 if axis == -1 else 0 :])}
    proto = model(
        [node("LayerNormalization", ["x", "s"], ["y"], axis=axis)],
        [value("x", ["n", 3, 5])],
        [value("y", None)],
        weights,
    )
    assert _types(tmp_path, proto, {"x": _random(2, 3, 5)}) == {"nn.LayerNorm": 1}


def test_older_files_have_the_weights_of_groups(tmp_path: Path) -> None:
    weights, x = {"s": _random(3), "b": _random(3) + 1}, _random(2, 6, 5, 4)
    graph = engine.load(save(tmp_path, _norm("GroupNormalization", weights, is_stored=True, opset=18, num_groups=3)))
    groups = x.reshape(2, 3, -1).astype(np.float64)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-3)
    expected = (normal * weights["s"][:, None] + weights["b"][:, None]).reshape(x.shape)
    for backend in ("reference", "compiled"):
        (y,) = engine.Session(graph, backend=backend, cache=None).run([x])
        np.testing.assert_allclose(y, expected, atol=1e-5)


def test_places_counted_from_constants_are_constants_themselves(tmp_path: Path) -> None:
    nodes = [
        node("Range", ["start", "limit", "step"], ["all"]),
        node("Slice", ["all", "one", "three"], ["some"]),
        node("Reshape", ["some", "column"], ["places"]),
        node("ScatterND", ["x", "places", "new"], ["y"]),
    ]
    numbers = {
        "start": np.int64(6),
        "limit": np.int64(-1),
        "step": np.int64(-2),
        "one": [1],
        "three": [3],
        "column": [-1, 1],
    }
    weights = {name: np.asarray(each, np.int64) for name, each in numbers.items()} | {"new": _random(2, 3)}
    proto = model(nodes, [value("x", [8, 3])], [value("y", None)], weights)
    assert _types(tmp_path, proto, {"x": _random(8, 3)}) == {"Tensor.index_put": 1, "prim::ListConstruct": 1}
