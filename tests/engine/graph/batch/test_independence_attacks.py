"""Graphs by which an item could reach the answer of another: none of them is proved to keep its items apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.pnnx import Operator
from tests.engine.graph.batch.test_independence import chain, onnx_graph, proof_of
from tests.engine.graph.build import F32, op
from tests.engine.onnx_files.models import INT64, node, onnx, value

RANDOM = np.random.default_rng(0)
BOOL = 9
COUNT = op("Tensor.size", "n", "0", "n", dim=0)
NUMBERS = [COUNT, op("torch.arange", "range", "n", "r", labels=("end",))]


def table(name: str, data: Any) -> Operator:
    return op("pnnx.Attribute", name, "", name, data=np.asarray(data))


def moved(*operators: Operator) -> list[Operator]:
    """Operators on a tensor ``t`` that has the batch last: [6, 4, n]."""
    return [op("Tensor.permute", "p", "0", "t", dims=(2, 1, 0)), *operators]


FLAT = [op("torch.flatten", "flat", "0", "f", start_dim=0, end_dim=1)]  # [4 * n, 6]
ATTACKS: dict[str, list[Operator]] = {
    "sum behind a permutation": moved(op("torch.sum", "mix", "t", "1", dim=(-1,), keepdim=False)),
    "mean of rows of several items": [*FLAT, op("torch.mean", "mix", "f", "1", dim=(0,), keepdim=True)],
    "scan behind a permutation": moved(op("torch.cumsum", "mix", "t", "1", dim=2)),
    "scan of rows of several items": [*FLAT, op("torch.cumsum", "mix", "f", "1", dim=0)],
    "running largest": [op("torch.cummax", "mix", "0", "1 places", dim=0)],
    "sorted behind a permutation": moved(op("torch.sort", "mix", "t", "1 i", dim=-1, descending=False)),
    "best of the batch": [op("torch.topk", "mix", "0", "1 i", k=1, dim=0, largest=True, sorted=True)],
    "best behind a permutation": moved(op("torch.topk", "mix", "t", "1 i", k=1, dim=-1, largest=True, sorted=True)),
    "rolled behind a permutation": moved(op("torch.roll", "mix", "t", "1", shifts=(1,), dims=(-1,))),
    "rolled rows of several items": [*FLAT, op("torch.roll", "mix", "f", "1", shifts=(4,), dims=(0,))],
    "turned round behind a permutation": moved(op("torch.flip", "mix", "t", "1", dims=(-1,))),
    "windows over items": [op("aten::unfold", "mix", "0", "1", dim=0, size=1, step=1)],
    "normalised in training": [
        op("F.batch_norm", "mix", "0", "1", labels=("input",), running_mean=None, running_var=None)
    ],
    "sum of products over items": moved(
        table("w", RANDOM.standard_normal((6, 4)).astype(F32)), op("torch.matmul", "mix", "t 0", "1")
    ),
    "labels summed over": [op("torch.einsum", "mix", "0 0", "1", equation="nij,nij->ij")],
    "labels crossed": [op("torch.einsum", "mix", "0 0", "1", equation="nij,mij->nm")],
    "the same label twice": [op("torch.einsum", "mix", "0 0", "1", equation="aij,bij->ab")],
    "batches of products summed": [
        table("base", np.zeros((4, 4), F32)),
        op("torch.transpose", "t", "0", "t", dim0=1, dim1=2),
        op("aten::addbmm", "mix", "base 0 t", "1", beta=1, alpha=1, labels=("input", "first", "second")),
    ],
    "item 0 by an index": [
        table("i", np.array([0])),
        op("prim::ListConstruct", "l", "i", "l"),
        op("Tensor.index", "mix", "0 l", "1"),
    ],
    "zeros as many as items": [
        *NUMBERS,
        table("zero", np.array([0])),
        op("Tensor.expand_as", "e", "zero r", "e"),
        op("prim::ListConstruct", "l", "e", "l"),
        op("Tensor.index", "mix", "0 l", "1"),
    ],
    "numbers turned round": [
        *NUMBERS,
        op("torch.flip", "flip", "r", "e", dims=(0,)),
        op("torch.index_select", "mix", "0 e", "1", dim=0),
    ],
    "numbers after one": [
        COUNT,
        op("pnnx.Expression", "more", "n", "m", expr="add(@0,1)"),
        table("start", np.array(1)),
        op("torch.arange", "range", "start m", "r", labels=("start", "end")),
        op("torch.index_select", "mix", "0 r", "1", dim=0),
    ],
    "a place that an item computes": [
        op("torch.argmax", "a", "0", "a", dim=2, keepdim=False),
        op("torch.argmax", "b", "a", "b", dim=1, keepdim=False),
        op("torch.index_select", "mix", "0 b", "1", dim=0),
    ],
    "gathered along the batch": [
        op("torch.argmax", "a", "0", "a", dim=2, keepdim=True),
        op("torch.gather", "mix", "0 a", "1", dim=0),
    ],
    "scattered along the batch": [
        op("torch.argmax", "a", "0", "a", dim=2, keepdim=True),
        op("Tensor.expand_as", "e", "a 0", "e"),
        op("torch.scatter_add", "mix", "0 e 0", "1", dim=0, labels=("input", "index", "src")),
    ],
    "added at places of the batch": [
        *NUMBERS,
        op("aten::index_add", "mix", "0 r 0", "1", dim=0, labels=("input", "index", "source")),
    ],
    "put at place 0": [
        table("i", np.array([0])),
        op("Tensor.select", "s", "0", "s", dim=0, index=0, labels=("input",)),
        op("prim::ListConstruct", "l", "i", "l"),
        op("Tensor.index_put", "mix", "0 l s", "1", accumulate=False, labels=("input", "indices", "values")),
    ],
    "chosen by the truth of another": [
        op("Tensor.select", "s", "0", "s", dim=0, index=0, labels=("input",)),
        op("torch.gt", "g", "s", "g", other=0),
        op("torch.where", "mix", "g 0 s", "1", labels=("condition", "input", "other")),
    ],
    "padded along the batch": [
        op("F.pad", "mix", "0", "1", mode="constant", pad=(0, 0, 0, 0, 1, 0), value=0.0, labels=("input",))
    ],
    "pixels of several items": [
        op("torch.unsqueeze", "u", "0", "u", dim=0),
        op("torch.transpose", "t", "u", "t", dim0=1, dim1=1),
        op("nn.PixelShuffle", "mix", "t", "1", upscale_factor=2),
    ],
    "cut across the batch and joined": [
        op("torch.chunk", "mix", "0", "a", chunks=1, dim=0),
        op("torch.cat", "c", "a a", "1", dim=0),
    ],
    "channels of several items": [
        op("torch.transpose", "t", "0", "t", dim0=0, dim1=1),
        op("torch.unsqueeze", "u", "t", "u", dim=3),
        op("nn.ChannelShuffle", "mix", "u", "1", groups=1),
        op("nn.GroupNorm", "g", "1", "2", num_groups=1, num_channels=1, eps=1e-5, affine=False),
    ],
    "a batch that is taken for channels": [
        op("nn.InstanceNorm1d", "mix", "0", "a", num_features=4, eps=1e-5, affine=False, track_running_stats=False),
        op("torch.transpose", "t", "a", "t", dim0=0, dim1=1),
        op("nn.AdaptiveAvgPool1d", "mix2", "t", "b", output_size=1),
        op("torch.transpose", "t2", "0", "t2", dim0=0, dim1=2),
        op("nn.AdaptiveAvgPool1d", "pool", "t2", "1", output_size=1),
    ],
    "a mask that counts the items": [
        op("Tensor.permute", "p", "0", "t", dims=(1, 0, 2)),
        op("Tensor.reshape", "q", "0", "q", shape=(-1, 6, 4)),
        op("engine.CausalMask", "mix", "q 0 t", "m"),
        op("torch.matmul", "a", "m 0", "1"),
    ],
    "as many steps as items": [COUNT, op("torch.roll", "mix", "0 n", "1", dims=(2,), labels=("input", "shifts"))],
    "the part at their number": [
        COUNT,
        op("torch.narrow", "mix", "0 n", "1", dim=2, length=1, labels=("input", "start")),
    ],
    "the slice of their number": [COUNT, op("Tensor.select", "mix", "0 n", "1", dim=2, labels=("input", "index"))],
    "keywords in another order": [
        op("torch.mean", "m", "0", "m", dim=(0,), keepdim=True),
        op("Tensor.type_as", "mix", "0 m", "1", labels=("other", "input")),
        op("torch.add", "a", "0 1", "2"),
    ],
    "the dtype of an item, the values of all": [
        op("torch.flip", "flip", "0", "m", dims=(0,)),
        op("Tensor.type_as", "mix", "0 m", "1", labels=("other", "input")),
    ],
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_through_a_pair_is_not_proved(name: str) -> None:
    proof = proof_of(chain(*ATTACKS[name]))
    assert proof.reason is not None


def body(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return onnx.helper.make_graph(nodes, "body", inputs, outputs)


PLANE = [4, 6]
SUMS: dict[str, Any] = {"axes": np.array([0])}
BOXES = [
    node("Slice", ["x", "zero", "four", "last"], ["boxes"]),
    node("Slice", ["x", "four", "five", "last"], ["one"]),
    node("Transpose", ["one"], ["scores"], perm=[0, 2, 1]),
]
_WINDOW: dict[str, Any] = {
    "zero": np.array([0]),
    "four": np.array([4]),
    "five": np.array([5]),
    "last": np.array([2]),
}
LSTM: dict[str, Any] = {
    "W": RANDOM.integers(-9, 9, (1, 6, 12)).astype(np.int8),
    "R": RANDOM.integers(-9, 9, (1, 3, 12)).astype(np.int8),
    "s": np.array([0.1], F32),
    "z": np.array([0], np.int8),
}
ONNX_ATTACKS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "a branch that the largest of all takes": (
        [
            node("ReduceMax", ["x"], ["m"], keepdims=0),
            node("Greater", ["m", "k"], ["big"]),
            node(
                "If",
                ["big"],
                ["y"],
                then_branch=body([node("Neg", ["x"], ["a"])], [], [value("a", ["batch", *PLANE])]),
                else_branch=body([node("Identity", ["x"], ["b"])], [], [value("b", ["batch", *PLANE])]),
            ),
        ],
        {"k": np.array(1, F32)},
    ),
    "a scan over the items": (
        [
            node(
                "Scan",
                ["start", "x"],
                ["end", "y"],
                num_scan_inputs=1,
                body=body(
                    [node("Add", ["state", "row"], ["next"]), node("Identity", ["next"], ["out"])],
                    [value("state", PLANE), value("row", PLANE)],
                    [value("next", PLANE), value("out", PLANE)],
                ),
            )
        ],
        {"start": np.zeros(PLANE, F32)},
    ),
    "a loop as long as the batch": (
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "first"], ["turns"]),
            node(
                "Loop",
                ["turns", "", "x"],
                ["y"],
                body=body(
                    [node("Add", ["v", "v"], ["w"]), node("Identity", ["go"], ["on"])],
                    [value("i", [], INT64), value("go", [], BOOL), value("v", ["batch", *PLANE])],
                    [value("on", [], BOOL), value("w", ["batch", *PLANE])],
                ),
            ),
        ],
        {"first": np.array(0)},
    ),
    "boxes that suppress others": ([*BOXES, node("NonMaxSuppression", ["boxes", "scores"], ["y"])], _WINDOW),
    "regions of other images": (
        [
            node("Unsqueeze", ["x", "axes"], ["image"]),
            node("RoiAlign", ["image", "rois", "of"], ["y"]),
        ],
        {"axes": np.array([1]), "rois": np.ones((2, 4), F32), "of": np.array([0, 0])},
    ),
    "softmax that flattens": ([node("Softmax", ["x"], ["y"], axis=0)], {}),
    "hardmax that flattens": ([node("Hardmax", ["x"], ["y"], axis=0)], {}),
    "rounded by the extremes of all": (
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node(
                "DynamicQuantizeLSTM",
                ["t", "W", "R", "", "", "", "", "", "s", "z", "s", "z"],
                ["y"],
                hidden_size=3,
                domain="com.microsoft",
            ),
        ],
        LSTM,
    ),
    "kept where a condition of shared length holds": (
        [node("Compress", ["x", "keep"], ["y"], axis=0)],
        {"keep": np.array([True])},
    ),
    "only what differs": ([node("Unique", ["x"], ["y"], axis=0)], {}),
    "their number in the dtype of an item": (
        [
            node("Cast", ["x"], ["bytes"], to=2),
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["n"]),
            node("CastLike", ["n", "bytes"], ["small"]),
            node("Cast", ["small"], ["wide"], to=7),
            node("Concat", ["wide", "rest"], ["to"], axis=0),
            node("Expand", ["half", "to"], ["e"]),
            node("Add", ["x", "e"], ["y"]),
        ],
        {"zero": np.array([0]), "rest": np.array([1, 1]), "half": np.array(0.5, F32)},
    ),
    "columns that index a table": (
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "first"], ["n"]),
            node("Range", ["first", "n", "step"], ["r"]),
            node("Gather", ["turned", "r"], ["p"]),
            node("Gather", ["x", "p"], ["y"]),
        ],
        {"first": np.array(0), "step": np.array(1), "turned": np.arange(16)[::-1].copy()},
    ),
    "written to the place of item 0": (
        [node("ScatterND", ["x", "place", "update"], ["y"])],
        {"place": np.array([[0]]), "update": np.zeros((1, *PLANE), F32)},
    ),
    "cut into pieces and turned round": (
        [
            node("SplitToSequence", ["x"], ["parts"], axis=0),
            node("SequenceAt", ["parts", "first"], ["part"]),
            node("Add", ["x", "part"], ["y"]),
        ],
        {"first": np.array(0)},
    ),
    "blocks of pixels with the batch behind": (
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("Unsqueeze", ["t", "axes"], ["u"]),
            node("LRN", ["u"], ["y"], size=3),
        ],
        SUMS,
    ),
    "a normalisation over the batch": (
        [node("LayerNormalization", ["x", "w"], ["y"], axis=0)],
        {"w": np.ones((1,), F32)},
    ),
    "a product that contracts the batch": (
        [
            node("Flatten", ["x"], ["f"]),
            node("Gemm", ["f", "f"], ["y"], transA=1),
        ],
        {},
    ),
    "a region that is cut out of the batch": (
        [node("CenterCropPad", ["x", "to"], ["y"], axes=[0])],
        {"to": np.array([1])},
    ),
}
OLD = ("softmax that flattens", "hardmax that flattens")


@pytest.mark.parametrize("name", ONNX_ATTACKS)
def test_an_attack_through_an_onnx_file_is_not_proved(name: str, tmp_path: Path) -> None:
    nodes, weights = ONNX_ATTACKS[name]
    domains = ["com.microsoft"] if any(each.domain for each in nodes) else []
    graph = onnx_graph(tmp_path, nodes, weights, opset=11 if name in OLD else 21, domains=domains)
    assert proof_of(graph).reason is not None
