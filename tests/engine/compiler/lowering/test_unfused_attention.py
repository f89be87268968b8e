"""Attention whose weights are given out, or of float64; sums of products of many tensors: the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.compiler.lowering.agreeing import check, everywhere
from tests.engine.graph.build import INPUT, built, op

RANDOM = np.random.default_rng(41)
TOLERANCE = {"float32": 5e-6, "float64": 1e-13}
LABELS = ("query", "key", "value", "attn_mask")


def values(*shape: int, dtype: str = "float64") -> Array:
    return RANDOM.standard_normal(shape).astype(dtype)


def attention(count: int = 3, **given: Any) -> Operator:
    names = " ".join(map(str, range(count)))
    return op("F.scaled_dot_product_attention", "attention", names, "y", labels=LABELS[:count], **given)


def module(
    dtype: str, outputs: str, inputs: str = "0", labels: tuple[str | None, ...] = (None,), **given: Any
) -> Operator:
    weights = {
        "in_proj_weight": values(36, 12, dtype=dtype) / 3, "in_proj_bias": values(36, dtype=dtype),
        "out_proj_weight": values(12, 12, dtype=dtype) / 3, "out_proj_bias": values(12, dtype=dtype),
    }  # fmt: skip
    params = {"embed_dim": 12, "num_heads": 3, "bias": True, "add_bias_kv": False, "add_zero_attn": False, **given}
    return op("nn.MultiheadAttention", "module", inputs, outputs, labels=labels, **params, **weights)


@pytest.mark.parametrize("given", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_attention_of_doubles(given: dict[str, Any]) -> None:
    for queries, keys in ((9, 7), (1, 1), (3, 40)):
        qkv = [values(2, 4, queries, 16), values(2, 4, keys, 16), values(2, 4, keys, 13)]
        check(qkv, attention(**given), tolerance=1e-14)


def test_attention_of_doubles_on_any_processor() -> None:
    everywhere([values(1, 2, 5, 8), values(1, 2, 19, 8), values(1, 2, 19, 9)], attention(), tolerance=1e-14)


def test_masked_attention_of_doubles_gives_zeros_where_nothing_is_seen() -> None:
    qkv, mask = [values(2, 4, 5, 8), values(2, 4, 7, 8), values(2, 4, 7, 8)], RANDOM.random((5, 7)) > 0.5
    mask[2] = False
    check([*qkv, mask], attention(4), tolerance=1e-14)
    check([*qkv, np.where(mask, 0.5, -np.inf) + values(2, 1, 5, 7)], attention(4), tolerance=1e-14)


def test_doubles_of_heads_in_groups() -> None:
    check([values(2, 6, 5, 8), values(2, 2, 7, 8), values(2, 2, 7, 8)], attention(enable_gqa=True), tolerance=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("given", [{"batch_first": True}, {"batch_first": False, "add_zero_attn": True}], ids=str)
def test_modules_that_give_their_weights_out(dtype: str, given: dict[str, Any]) -> None:
    x = values(2, 5, 12, dtype=dtype)
    check([x], module(dtype, "y weights", **given), tolerance=TOLERANCE[dtype])
    check([x[0]], module(dtype, "y weights", **given), tolerance=TOLERANCE[dtype])


def test_modules_with_masks_and_weights() -> None:
    x, mask = values(2, 5, 12, dtype="float32"), np.triu(np.ones((5, 5), np.bool_), 1)
    given: dict[str, Any] = {"labels": (None, "attn_mask"), "inputs": "0 1", "batch_first": True}
    check([x, mask], module("float32", "y weights", **given), tolerance=TOLERANCE["float32"])
    mask[3] = True
    check([x, mask], module("float32", "y weights", **given), tolerance=TOLERANCE["float32"])


def test_modules_of_which_nothing_but_the_weights_is_wanted() -> None:
    x = values(2, 5, 12, dtype="float32")
    wanted = {"_y": TensorSpec((2, 5, 5), np.dtype(np.float32)), "_0": TensorSpec(x.shape, x.dtype)}
    alone = built(INPUT, module("float32", "y", batch_first=True), op("pnnx.Output", "out", "y"), **wanted)
    session = Session(alone, backend="compiled", cache=None)
    np.testing.assert_allclose(session.run([x])[0], Session(alone, backend="reference").run([x])[0], atol=1e-6)
    assert not [row["why"] for row in session.describe()["operators"] if row.get("why")]


def test_modules_of_doubles() -> None:
    everywhere([values(2, 5, 12)], module("float64", "y", batch_first=True), tolerance=1e-13)


PRODUCTS = {
    "ij,jk,kl->il": ((3, 4), (4, 5), (5, 6)),
    "abc,abd,abe->acde": ((2, 3, 4), (2, 3, 5), (2, 3, 6)),
    "bij,bjk,bk->bi": ((2, 3, 4), (2, 4, 5), (2, 5)),
    "i,i,i->i": ((7,), (7,), (7,)),
    "i,j,k->ijk": ((2,), (3,), (4,)),
    "ab,ab,ab->": ((3, 4),) * 3,
    "ij,kj,kl,l->i": ((3, 4), (5, 4), (5, 6), (6,)),
    "bhqd,bhkd,bkv,h->bqv": ((2, 4, 5, 6), (2, 4, 7, 6), (2, 7, 3), (4,)),
    "ii,ij,jk->ik": ((3, 3), (3, 4), (4, 5)),
    "abc,abc,abc->ac": ((3, 1, 4), (3, 5, 4), (1, 5, 4)),
    "ab,cb,ad->cd": ((1, 1), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("equation", PRODUCTS)
def test_sums_of_products_of_many(equation: str, dtype: str) -> None:
    given = [values(*shape, dtype=dtype) for shape in PRODUCTS[equation]]
    names = " ".join(map(str, range(len(given))))
    check(given, op("torch.einsum", "sum", names, "y", equation=equation), tolerance=TOLERANCE[dtype])


def test_a_large_sum_of_products_on_any_processor() -> None:
    given = [values(*shape, dtype="float32") for shape in ((33, 40), (40, 70), (70, 17))]
    everywhere(given, op("torch.einsum", "sum", "0 1 2", "y", equation="ij,jk,kl->il"), tolerance=5e-6)


def encoder(inputs: str, **given: Any) -> Operator:
    """PyTorch's fused encoder layer: 12 wide, 3 heads, 20 between its linear layers."""
    shapes = {
        "qkv": (36, 12), "proj": (12, 12), "norm_1": (12,), "norm_2": (12,), "ffn_1": (20, 12), "ffn_2": (12, 20),
    }  # fmt: skip
    weights = {}
    for name, shape in shapes.items():
        first, _, number = name.partition("_")
        end = f"_{number}" if number else ""
        weights[f"{first}_weight{end}"] = values(*shape, dtype="float32") / np.float32(3)
        weights[f"{first}_bias{end}"] = values(shape[0], dtype="float32")
    labels = ("src", "mask")[: len(inputs.split())]
    params = {"embed_dim": 12, "num_heads": 3, "eps": 1e-5, **given}
    return op("aten::_transformer_encoder_layer_fwd", "layer", inputs, "y", labels=labels, **params, **weights)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layers_as_pytorch_fuses_them(norm_first: bool) -> None:
    x, later = values(2, 7, 12, dtype="float32"), np.triu(np.ones((7, 7), np.bool_), 1)
    given = {"norm_first": norm_first, "use_gelu": norm_first}
    check([x], encoder("0", **given), tolerance=1e-5)
    check([x, later], encoder("0 1", mask_type=0, **given), tolerance=1e-5)
    check([x, later[:2]], encoder("0 1", mask_type=1, **given), tolerance=1e-5)
    check([x[:1, :1]], encoder("0", **given), tolerance=1e-5)


def test_masks_of_encoder_layers_may_be_numbers() -> None:
    x, later = values(2, 7, 12, dtype="float32"), np.triu(np.full((7, 7), -np.inf, np.float32), 1)
    check([x, later], encoder("0 1", mask_type=0), tolerance=1e-5)
    heads = np.where(values(2, 3, 7, 7, dtype="float32") > 1, np.float32(1), later)
    check([x, heads], encoder("0 1", mask_type=2), tolerance=1e-5)
    check([x], op("pnnx.Attribute", "stored", "", "m", data=later), encoder("0 m", mask_type=0), tolerance=1e-5)


def test_an_encoder_layer_on_any_processor() -> None:
    everywhere([values(1, 19, 12, dtype="float32")], encoder("0"), tolerance=1e-5)
