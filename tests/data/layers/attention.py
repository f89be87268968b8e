"""Samples of attention: every arrangement of operands, masks and outputs of the module; the function; the fused encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from record import Sample
from torch import Tensor, nn
from written import written

B, H, L, S, E = 2, 2, 5, 6, 8
X, Y, Z = torch.randn(B, L, E), torch.randn(B, S, E), torch.randn(B, S, E)
Q, K, V = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 6)
INFINITY = float("inf")
PADDING = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 1, 1, 1]]).bool()
CAUSAL = torch.triu(torch.ones(L, L), 1).bool()
LEFT_OUT = torch.tensor([[True, True, False, True, True], [False] * 5, [True] * 5])
torch.backends.mha.set_fastpath_enabled(False)


class Attention(nn.Module):
    """An attention module and a way of calling it."""

    def __init__(self, call: Callable[..., Any], **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(E, H, **{"batch_first": True, **options})
        self.call = call
        with torch.no_grad():
            for parameter in self.attention.parameters():
                parameter.copy_(torch.randn(parameter.shape) * 0.4)

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(self.attention, *inputs)


def with_number(x: Tensor, number: float, row: int) -> Tensor:
    """A copy in which an element of a row is this number."""
    x = x.clone()
    x[..., row, 1] = number
    return x


def self_attention(module: nn.MultiheadAttention, x: Tensor) -> Any:
    return module(x, x, x)


def module(name: str, call: Callable[..., Any], inputs: Sequence[Tensor], **rest: Any) -> Sample:
    sample = {key: rest.pop(key) for key in ("further", "dynamic", "rtol", "atol") if key in rest}
    return Sample(name, Attention(call, **rest), inputs, **sample)


def fast(name: str, call: nn.Module, inputs: Sequence[Tensor]) -> Sample:
    """As traced where PyTorch's fast path is on."""
    return Sample(name, Fast(call), inputs, atol=2e-6)


class Fast(nn.Module):
    def __init__(self, call: nn.Module) -> None:
        super().__init__()
        self.call = call.eval()

    def forward(self, *inputs: Tensor) -> Any:
        torch.backends.mha.set_fastpath_enabled(True)
        try:
            return self.call(*inputs)
        finally:
            torch.backends.mha.set_fastpath_enabled(False)


class Padded(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(E, H, 16, batch_first=True, **options)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.layer(x, src_key_padding_mask=padding)


def fused(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    e: Tensor,
    f: Tensor,
    g: Tensor,
    h: Tensor,
    i: Tensor,
    y: Tensor,
    z: Tensor,
) -> tuple[Tensor, Tensor]:
    layer = torch._transformer_encoder_layer_fwd
    return (
        layer(x, E, H, a, b, c, d, True, False, 0.1, e, f, e, f, g, h, i, d, y, 0),
        layer(x, E, H, a, b, c, d, False, True, 0.1, e, f, e, f, g, h, i, d, z, 2),
    )


attend = F.scaled_dot_product_attention
FUSED = "aten::_transformer_encoder_layer_fwd"
ENCODER_NAMES = "abcdefghi"
ENCODER = [
    torch.randn(shape) * 0.5 for shape in ((3 * E, E), (3 * E,), (E, E), (E,), (E,), (E,), (16, E), (16,), (E, 16))
]

SAMPLES = [
    Sample(
        "sdpa",
        lambda q, k, v: (attend(q, k, v), attend(q, k, v, scale=0.3), attend(q, k, v, is_causal=True)),
        (Q, K, V),
    ),
    Sample(
        "sdpa_masks",
        lambda q, k, v, m, f: (attend(q, k, v, m), attend(q, k, v, f), attend(q, k, v, f[0])),
        (Q, K, V, LEFT_OUT, torch.randn(4, 3, 5)),
    ),
    Sample(
        "sdpa_masks_of_infinities",
        lambda q, k, v, f: attend(q, k, v, f),
        (Q, K, V, torch.where(LEFT_OUT, 0.5, -INFINITY)),
    ),
    Sample(
        "sdpa_not_finite",
        attend,
        (Q, with_number(K, float("nan"), 2), V, LEFT_OUT),
        [
            (Q, with_number(K, INFINITY, 2), V, LEFT_OUT),
            (Q, K, with_number(V, float("nan"), 2), LEFT_OUT),
            (with_number(Q, float("nan"), 1), K, V, LEFT_OUT),
        ],
    ),
    Sample(
        "sdpa_causal_not_finite",
        lambda q, k, v: attend(q, k, v, is_causal=True),
        (Q, with_number(K, float("nan"), 1), K),
        [(Q, with_number(K, -INFINITY, 2), K), (Q, K, with_number(K, float("nan"), 4))],
    ),
    Sample(
        "sdpa_grouped",
        lambda q, k, v: (
            attend(q, k, v, enable_gqa=True),
            attend(q, k[:, :1], v[:, :1], enable_gqa=True, is_causal=True),
        ),
        (Q, K[:, :2], V[:, :2]),
    ),
    Sample(
        "sdpa_grouped_masked",
        lambda q, k, v, m: attend(q, k, v, m, enable_gqa=True),
        (Q, K[:, :2], V[:, :2], torch.randn(2, 4, 3, 5)),
    ),
    Sample(
        "sdpa_ranks",
        lambda q, k, v: (
            attend(q[0], k[0], v[0]),
            attend(q[0, 0], k[0, 0], v[0, 0]),
            attend(q[:, None], k[:, None], v[:, None]),
        ),
        (Q, K, V),
    ),
    Sample("sdpa_broadcast", lambda q, k, v: attend(q, k, v), (Q, K[:1, :1], V[:1, :1])),
    Sample(
        "sdpa_strided",
        lambda q, k, v: attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)),
        (Q, torch.randn(2, 5, 3, 8), torch.randn(2, 5, 3, 6)),
    ),
    Sample("sdpa_double", attend, (Q.double(), K.double(), V.double())),
    Sample("sdpa_half", attend, (Q.half(), K.half(), V.half()), rtol=5e-3, atol=2e-3),
    Sample("sdpa_bfloat16", attend, (Q.bfloat16(), K.bfloat16(), V.bfloat16()), rtol=2e-2, atol=1e-2),
    Sample("sdpa_extremes", attend, (Q * 300, K * 300, V), atol=1e-4),
    Sample(
        "sdpa_without_mask_as_operand",
        lambda q, k, v: attend(q, k, v),
        (Q, K, V),
        param=written(
            {"q": Q, "k": K, "v": V}, "F.scaled_dot_product_attention q k v None -> y dropout_p=0.0 is_causal=False"
        ),
    ),
    Sample(
        "sdpa_dynamic",
        attend,
        (Q, K, V),
        [(torch.randn(1, 4, 2, 8), torch.randn(1, 4, 7, 8), torch.randn(1, 4, 7, 6))],
        dynamic=(torch.randn(3, 4, 6, 8), torch.randn(3, 4, 9, 8), torch.randn(3, 4, 9, 6)),
    ),
    module("mha", self_attention, (X,), further=[(X[:1],)]),
    module("mha_batch_second", self_attention, (X,), batch_first=False),
    module("mha_unbatched", self_attention, (X[0],)),
    module("mha_output_only", lambda m, x: m(x, x, x)[0], (X,)),
    module("mha_weights_only", lambda m, x: m(x, x, x)[1], (X,)),
    module("mha_weights_first", lambda m, x: (lambda output, weights: (weights * 2, output))(*m(x, x, x)), (X,)),
    module("mha_weights_of_every_head", lambda m, x: m(x, x, x, average_attn_weights=False), (X,)),
    module(
        "mha_weights_of_every_head_only",
        lambda m, x: m(x, x, x, average_attn_weights=False)[1],
        (X,),
        batch_first=False,
    ),
    module("mha_unbatched_weights_of_every_head", lambda m, x: m(x, x, x, average_attn_weights=False), (X[0],)),
    module("mha_without_weights", lambda m, x: m(x, x, x, need_weights=False)[0], (X,)),
    module("mha_query_and_memory", lambda m, x, y: m(x, y, y), (X, Y)),
    module("mha_three", lambda m, x, y, z: m(x, y, z), (X, Y, Z)),
    module(
        "mha_three_batch_second",
        lambda m, x, y, z: m(x, y, z),
        (torch.randn(L, B, E), torch.randn(S, B, E), torch.randn(S, B, E)),
        batch_first=False,
    ),
    module(
        "mha_widths_and_additions",
        lambda m, x, y, z: m(x, y, z),
        (X, torch.randn(B, S, 3), torch.randn(B, S, 4)),
        kdim=3,
        vdim=4,
        add_bias_kv=True,
        add_zero_attn=True,
    ),
    module(
        "mha_additions_masked",
        lambda m, x, a: m(x, x, x, attn_mask=a),
        (X, torch.randn(L, L)),
        add_bias_kv=True,
        add_zero_attn=True,
    ),
    module("mha_additions_unbatched", self_attention, (X[0],), add_bias_kv=True, add_zero_attn=True),
    module("mha_no_bias", self_attention, (X,), bias=False),
    module(
        "mha_no_bias_widths",
        lambda m, x, y, z: m(x, y, z)[0],
        (X, torch.randn(B, S, 3), torch.randn(B, S, 4)),
        kdim=3,
        vdim=4,
        bias=False,
    ),
    module("mha_padding", lambda m, x, p: m(x, x, x, key_padding_mask=p), (X, PADDING)),
    module(
        "mha_padding_batch_second",
        lambda m, x, p: m(x, x, x, key_padding_mask=p),
        (torch.randn(L, B, E), PADDING),
        batch_first=False,
    ),
    module("mha_padding_of_floats", lambda m, x, p: m(x, x, x, key_padding_mask=p)[0], (X, torch.randn(B, L))),
    module("mha_padding_unbatched", lambda m, x, p: m(x, x, x, key_padding_mask=p), (X[0], PADDING[1])),
    module(
        "mha_padding_not_finite",
        lambda m, x, y, p: m(x, y, y, key_padding_mask=p),
        (X, with_number(Y, float("nan"), 5), torch.arange(S).expand(B, S) > 3),
    ),
    module("mha_causal", lambda m, x, a: m(x, x, x, attn_mask=a), (X, CAUSAL)),
    module("mha_mask_of_floats", lambda m, x, a: m(x, x, x, attn_mask=a)[0], (X, torch.randn(L, L))),
    module("mha_mask_constant", lambda m, x: m(x, x, x, attn_mask=torch.ones(L, L).triu())[0], (X,)),
    module("mha_mask_of_every_head", lambda m, x, a: m(x, x, x, attn_mask=a)[0], (X, torch.randn(B * H, L, L))),
    module(
        "mha_mask_as_wide_as_a_sequence",
        lambda m, x, y, a: m(x, y, y, attn_mask=a)[0],
        (X, torch.randn(B, E, E), torch.randn(B * H, L, E)),
    ),
    module("mha_mask_unbatched", lambda m, x, y, a: m(x, y, y, attn_mask=a), (X[0], Y[0], torch.randn(L, S))),
    module(
        "mha_mask_unbatched_as_wide_as_a_sequence",
        lambda m, x, y, a: m(x, y, y, attn_mask=a)[0],
        (X[0], torch.randn(E, E), torch.randn(L, E)),
    ),
    module("mha_both_masks", lambda m, x, p, a: m(x, x, x, key_padding_mask=p, attn_mask=a), (X, PADDING, CAUSAL)),
    module(
        "mha_both_masks_of_memory",
        lambda m, x, y, p, a: m(x, y, y, key_padding_mask=p, attn_mask=a)[0],
        (X, Y, torch.tensor([[0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1]]).bool(), torch.rand(L, S) > 0.7),
    ),
    module(
        "mha_both_masks_of_floats",
        lambda m, x, y, p, a: m(x, y, y, key_padding_mask=p, attn_mask=a)[0],
        (X, Y, torch.randn(B, S), torch.randn(L, S)),
    ),
    module(
        "mha_fully_masked_weights",
        lambda m, x, a: m(x, x, x, attn_mask=a),
        (X, torch.eye(L).bool() | torch.tensor([[True]] + [[False]] * 4)),
    ),
    module(
        "mha_fully_masked",
        lambda m, x, a: m(x, x, x, attn_mask=a, need_weights=False)[0],
        (X, torch.eye(L).bool() | torch.tensor([[True]] + [[False]] * 4)),
    ),
    module(
        "mha_dynamic",
        lambda m, x, y, p: m(x, y, y, key_padding_mask=p),
        (X, Y, torch.zeros(B, S).bool()),
        further=[(torch.randn(3, 2, E), torch.randn(3, 4, E), torch.tensor([[False, True, False, False]] * 3))],
        dynamic=(torch.randn(4, 7, E), torch.randn(4, 9, E), torch.zeros(4, 9).bool()),
    ),
    module(
        "mha_dynamic_batch",
        lambda m, x, p: m(x, x, x, key_padding_mask=p),
        (X, PADDING),
        further=[(torch.randn(5, L, E), torch.eye(5).bool())],
        dynamic=(torch.randn(3, L, E), torch.zeros(3, L).bool()),
    ),
    module("mha_double", lambda m, x: m.double()(x, x, x), (X.double(),)),
    fast("mha_fast", Attention(lambda m, x: m(x, x, x)[0]), (X,)),
    fast("mha_fast_padding", Attention(lambda m, x, p: m(x, x, x, key_padding_mask=p)[0]), (X, PADDING)),
    fast("mha_fast_causal", Attention(lambda m, x, a: m(x, x, x, attn_mask=a)[0]), (X, CAUSAL)),
    fast("encoder", nn.TransformerEncoderLayer(E, H, 16, batch_first=True), (X,)),
    fast(
        "encoder_norm_first",
        nn.TransformerEncoderLayer(E, H, 16, batch_first=True, norm_first=True, activation="gelu"),
        (X,),
    ),
    # Not bools: the converter would fold the mask they are turned into, all filled with -inf.
    fast("encoder_padded", Padded(), (X, torch.where(PADDING, -INFINITY, 0.0))),
    Sample(
        "encoder_attention_masks",
        lambda *operands: fused(*operands),
        (X, *ENCODER, CAUSAL, (torch.rand(B, H, L, L) > 0.7)),
        param=written(
            dict(zip("x" + ENCODER_NAMES + "yz", (X, *ENCODER, CAUSAL, torch.ones(B, H, L, L).bool()), strict=True)),
            f"{FUSED} x 8 2 a b c d True False 0.1 e f e f g h i d y 0 -> p",
            f"{FUSED} x 8 2 a b c d False True 0.1 e f e f g h i d z 2 -> q",
        ),
        atol=2e-6,
    ),
    fast(
        "encoder_stack",
        nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 16, batch_first=True), 2, enable_nested_tensor=False),
        (X,),
    ),
    Sample("encoder_unfused", nn.TransformerEncoderLayer(E, H, 16, batch_first=True), (X,)),
    Sample("encoder_unfused_padded", Padded(activation="gelu"), (X, torch.where(PADDING, -INFINITY, 0.0))),
]
