"""Tests of operator captions."""

from __future__ import annotations

from typing import Any

import pytest

from app.render.caption import COLOURS, FAMILIES, family_of, key_params, output_shapes
from app.render.description import read_description
from app.render.formatting import count_text, shape_text, shortened, time_text
from tests.app.render.build import Sketch

CAPTIONS: list[tuple[str, dict[str, Any], str]] = [
    (
        "nn.Conv2d",
        {"in_channels": 8, "out_channels": 8, "groups": 8, "kernel_size": [3, 5], "stride": [2, 1]},
        "3×5, 8→8, depthwise, stride 2×1",
    ),
    (
        "nn.Conv1d",
        {"in_channels": 8, "out_channels": 8, "groups": 2, "kernel_size": [3], "padding": "same"},
        "window 3, 8→8, groups 2, padding same",
    ),
    ("nn.ConvTranspose2d", {"kernel_size": [2, 2], "output_padding": [1, 1]}, "2×2, output padding 1"),
    ("F.conv2d", {"stride": [1, 1], "padding": [0, 0], "padding_mode": "zeros", "bias": None}, ""),
    ("nn.Linear", {"in_features": 512, "out_features": 1000, "bias": True}, "512→1000"),
    ("nn.Embedding", {"num_embeddings": 100, "embedding_dim": 16, "sparse": False}, "100×16"),
    ("torch.einsum", {"equation": "ij,jk->ik"}, "ij,jk->ik"),
    ("nn.MaxPool2d", {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}, "3×3, stride 2, padding 1"),
    ("nn.AdaptiveAvgPool2d", {"output_size": [1, 1]}, "to 1×1"),
    ("nn.LayerNorm", {"normalized_shape": [384], "eps": 1e-5}, "384"),
    ("nn.GroupNorm", {"num_groups": 4, "num_channels": 32}, "32, 4 groups"),
    ("nn.MultiheadAttention", {"embed_dim": 64, "num_heads": 8}, "embed dim 64, 8 heads"),
    ("F.scaled_dot_product_attention", {"is_causal": True, "dropout_p": 0.0}, "causal"),
    ("nn.LSTM", {"input_size": 10, "hidden_size": 20, "num_layers": 2}, "10→20, 2 layers"),
    ("nn.GRU", {"input_size": 10, "hidden_size": 20, "num_layers": 1, "bidirectional": True}, "10→20, bidirectional"),
    ("Tensor.slice", {"dims": [2], "starts": [0], "ends": [2147483647], "select": None}, "dims 2, starts 0, ends end"),
    ("my.Op", {"a": (1, 2), "b": "x"}, "a 1,2, b x"),
    ("nn.ReLU", {}, ""),
]

TYPES = {
    "pnnx.Input": "io", "pnnx.Output": "io", "pnnx.Attribute": "constant", "pnnx.Expression": "expression",
    "nn.Conv2d": "conv", "F.conv_transpose1d": "conv", "torchvision.ops.DeformConv2d": "conv",
    "nn.Linear": "linear", "torch.matmul": "linear", "nn.Embedding": "linear", "aten::dot": "linear",
    "nn.MultiheadAttention": "attention", "F.scaled_dot_product_attention": "attention",
    "nn.LSTM": "recurrent", "nn.GRU": "recurrent",
    "nn.AdaptiveAvgPool2d": "pool", "F.max_pool2d": "pool", "nn.MaxUnpool2d": "pool",
    "nn.BatchNorm2d": "norm", "F.layer_norm": "norm", "F.local_response_norm": "norm", "F.normalize": "norm",
    "torch.norm": "reduce", "aten::linalg_norm": "reduce", "torch.topk": "reduce", "torch.max": "reduce",
    "F.relu": "activation", "nn.Softmax2d": "activation", "F.leaky_relu": "activation", "nn.Dropout": "activation",
    "Tensor.reshape": "shape", "torch.cat": "shape", "nn.PixelShuffle": "shape", "nn.ReplicationPad2d": "shape",
    "F.upsample_bilinear": "shape", "nn.Upsample": "shape", "prim::TupleUnpack": "shape",
    "torch.eq": "expression", "torch.clamp": "expression",
    "my.Op": "other", "": "other", "pnnx.custom_op.torchvision.nms": "other",
}  # fmt: skip


@pytest.mark.parametrize(("type", "params", "expected"), CAPTIONS, ids=[caption[0] for caption in CAPTIONS])
def test_a_caption_names_what_is_not_default(type: str, params: dict[str, Any], expected: str) -> None:
    sketch = Sketch()
    sketch.operator(type, params=params)
    assert key_params(read_description(sketch.describe()).operators[0]) == expected


@pytest.mark.parametrize(("type", "family"), TYPES.items(), ids=list(TYPES))
def test_a_type_belongs_to_its_family(type: str, family: str) -> None:
    assert family_of(type) == family


def test_every_family_has_a_colour() -> None:
    assert set(FAMILIES) == set(COLOURS)


def test_many_equal_outputs_are_counted() -> None:
    sketch = Sketch()
    sketch.operator("torch.unbind", outputs=5, shape=[2, 3])
    description = read_description(sketch.describe())
    assert output_shapes(description.operators[0], description) == "5 × (2×3)"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (shape_text((1, None, 3)), "1×?×3"),
        (shape_text(()), "scalar"),
        (shape_text(None), ""),
        (time_text(812.4), "812 µs"),
        (time_text(999.9), "1 ms"),
        (time_text(1234.0), "1.23 ms"),
        (time_text(2.5e6), "2.5 s"),
        (count_text(999), "999"),
        (count_text(11_689_512), "11.7 M"),
        (count_text(3.63e9, "FLOP"), "3.63 GFLOP"),
        (shortened("abcdefghij", 10), "abcdefghij"),
        (shortened("abcdefghijk", 10), "abcdefghi…"),
        (shortened("abcdefghijk", 10, 4), "abcde…hijk"),
    ],
)
def test_quantities_are_spelt_for_people(found: str, expected: str) -> None:
    assert found == expected
