"""Operators on sequences and signals: products, attention, recurrence, tables, spectra."""

from __future__ import annotations

from typing import Any

from benchmarks.layers.case import Case, Draw, integers, normal, steps, uniform

HEADS, TOKENS = normal(1, 12, 197, 64), normal(1, 197, 768)


def _recurrent(type: str, gates: int, call: Any, **params: Any) -> Case:
    shapes = {"weight_ih_l0": (gates * 256, 128), "weight_hh_l0": (gates * 256, 256), "bias_ih_l0": (gates * 256,),
              "bias_hh_l0": (gates * 256,)}  # fmt: skip
    settings = {"input_size": 128, "hidden_size": 256, "num_layers": 1, "bias": True, "batch_first": True,
                "bidirectional": False} | params  # fmt: skip
    return Case(family="recurrent", type=type, call=call, operands=(normal(1, 64, 128),), params=settings,
                attributes={name: Draw("uniform", shape) for name, shape in shapes.items()})  # fmt: skip


def _options(t: Any) -> tuple[Any, ...]:
    """Return the last arguments of torch.gru and similar: bias, layers, dropout, training, directions, batch first."""
    return True, 1, 0.0, False, False, True


def _lstm(t: Any, x: Any, *weights: Any) -> Any:
    zeros = t.zeros(1, 1, 256)
    return t.lstm(x, (zeros, zeros), weights, *_options(t))[0]


def _gru(t: Any, x: Any, *weights: Any) -> Any:
    return t.gru(x, t.zeros(1, 1, 256), weights, *_options(t))[0]


def _rnn(t: Any, x: Any, *weights: Any) -> Any:
    return t.rnn_tanh(x, t.zeros(1, 1, 256), weights, *_options(t))[0]


def _attention(t: Any, x: Any, in_weight: Any, in_bias: Any, out_weight: Any, out_bias: Any) -> Any:
    steps = x.transpose(0, 1)
    found, _ = t.nn.functional.multi_head_attention_forward(
        *(steps, steps, steps, 768, 12, in_weight, in_bias, None, None, False, 0.0, out_weight, out_bias),
        training=False, need_weights=False,
    )  # fmt: skip
    return found.transpose(0, 1)


CASES = (
    Case(family="linear", type="nn.Linear", operands=(TOKENS,),
         attributes={"weight": normal(768, 768), "bias": normal(768)},
         params={"in_features": 768, "out_features": 768, "bias": True},
         call=lambda t, x, w, b: t.nn.functional.linear(x, w, b)),
    Case(family="linear", type="aten::bilinear",
         operands=(normal(64, 64), normal(64, 64), normal(32, 64, 64), normal(32)),
         call=lambda t, a, b, w, c: t.nn.functional.bilinear(a, b, w, c)),
    Case(family="matmul", type="torch.matmul", operands=(HEADS, normal(1, 12, 64, 197)), call=lambda t, a, b: a @ b),
    Case(family="matmul", type="torch.bmm", operands=(normal(16, 128, 128), normal(16, 128, 128)),
         call=lambda t, a, b: t.bmm(a, b)),
    Case(family="matmul", type="torch.addmm", operands=(normal(197, 512), normal(197, 768), normal(768, 512)),
         params={"alpha": 1, "beta": 1}, call=lambda t, c, a, b: t.addmm(c, a, b)),
    Case(family="einsum", type="torch.einsum", operands=(HEADS, HEADS), params={"equation": "bhid,bhjd->bhij"},
         call=lambda t, a, b: t.einsum("bhid,bhjd->bhij", a, b)),
    Case(family="attention", type="F.scaled_dot_product_attention", operands=(HEADS, HEADS, HEADS),
         params={"attn_mask": None, "dropout_p": 0.0, "is_causal": False},
         call=lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v)),
    Case(family="attention", type="nn.MultiheadAttention", operands=(TOKENS,),
         attributes={"in_proj_weight": uniform(2304, 768), "in_proj_bias": uniform(2304),
                     "out_proj.weight": uniform(768, 768), "out_proj.bias": uniform(768)},
         params={"embed_dim": 768, "num_heads": 12, "kdim": 768, "vdim": 768, "bias": True, "add_bias_kv": False,
                 "add_zero_attn": False, "batch_first": True}, call=_attention),
    _recurrent("nn.LSTM", 4, _lstm, proj_size=0),
    _recurrent("nn.GRU", 3, _gru),
    _recurrent("nn.RNN", 1, _rnn, nonlinearity="tanh"),
    Case(family="embedding", type="nn.Embedding", operands=(integers(30000, 8, 128),),
         attributes={"weight": normal(30000, 256)},
         params={"num_embeddings": 30000, "embedding_dim": 256, "sparse": False},
         call=lambda t, i, w: t.nn.functional.embedding(i, w)),
    Case(family="embedding", type="aten::embedding_bag",
         operands=(normal(5000, 64), integers(5000, 4096), steps(64, 64), False, 0, False, None, False, None),
         call=lambda t, w, i, o, *rest: t.nn.functional.embedding_bag(i, w, o, mode="sum")),
    Case(family="distance", type="aten::cdist", operands=(normal(256, 128), normal(256, 128), 2.0, None),
         call=lambda t, a, b, p, mode: t.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist")),
    Case(family="distance", type="aten::cosine_similarity", operands=(normal(512, 512), normal(512, 512), 1, 1e-8),
         call=lambda t, a, b, d, e: t.cosine_similarity(a, b, d, e)),
    Case(family="spectral", type="torch.fft.rfft", operands=(normal(64, 4096),),
         params={"n": None, "dim": -1, "norm": None}, call=lambda t, x: t.fft.rfft(x)),
    Case(family="spectral", type="torch.fft.fft2", operands=(normal(8, 128, 128),),
         params={"s": None, "dim": (-2, -1), "norm": None}, call=lambda t, x: t.fft.fft2(x)),
    Case(family="spectral", type="torch.stft", operands=(normal(1, 48000), uniform(512)),
         params={"n_fft": 512, "hop_length": 128, "win_length": 512, "center": True, "pad_mode": "reflect",
                 "normalized": False, "onesided": True, "return_complex": True},
         call=lambda t, x, w: t.stft(x, 512, 128, 512, w, return_complex=True)),
    Case(family="split", type="torch.split", operands=(TOKENS,), params={"split_size_or_sections": 256, "dim": 2},
         call=lambda t, x: t.split(x, 256, 2)),
)  # fmt: skip
