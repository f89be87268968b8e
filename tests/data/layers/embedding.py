"""Samples of table lookup."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn
from written import written

TABLE = torch.randn(7, 3)
WORDS = torch.tensor([[0, 6, 2], [3, 3, 1]])
OFFSETS = torch.tensor([0, 2, 2, 5])
BAGGED = torch.tensor([0, 6, 2, 3, 3, 1])


def bag(mode: str, *, weighted: bool = False, closed: bool = False, padding: int | None = None) -> Sample:
    """One way of pooling; the outputs kept for the gradient do not count."""
    codes = {"sum": 0, "mean": 1, "max": 2}
    offsets = torch.tensor([0, 2, 2, 6]) if closed else OFFSETS
    factors = torch.tensor([0.5, 2, -1, 1, 0, 3])
    inputs = (TABLE, BAGGED, offsets, factors) if weighted else (TABLE, BAGGED, offsets)
    operands = f"w i o False {codes[mode]} False {'f' if weighted else 'None'} {closed} {padding}"
    name = (
        f"bag_{mode}"
        + "_weighted" * weighted
        + "_closed" * closed
        + ("" if padding is None else f"_padded_{padding % 7}")
    )
    text = written(dict(zip("wiof", inputs, strict=False)), f"aten::embedding_bag {operands} -> y b s m")
    text = text.replace("tuple 4 1 y b s m", "tuple 1 1 y")
    return Sample(
        name,
        lambda w, i, o, f=None: F.embedding_bag(
            i, w, o, mode=mode, per_sample_weights=f, include_last_offset=closed, padding_idx=padding
        ),
        inputs,
        param=text,
    )


SAMPLES = [
    Sample("nn_Embedding", nn.Embedding(7, 3, padding_idx=0), (WORDS,), [(WORDS.flip(0),)]),
    Sample("nn_Embedding_int32", nn.Embedding(7, 3), (WORDS.int(),)),
    Sample("nn_Embedding_vector", nn.Embedding(7, 3), (WORDS[0],)),
    Sample("nn_Embedding_dynamic", nn.Embedding(7, 3), (WORDS,), [(torch.tensor([[4]]),)], dynamic=(torch.zeros(1, 5, dtype=torch.long),)),
    Sample("nn_Embedding_half_table", lambda i: F.embedding(i, TABLE.half()), (WORDS,), rtol=0,
           param=written({"i": WORDS}, "nn.Embedding i -> y embedding_dim=3 num_embeddings=7 sparse=False @weight=(7,3)f16"),
           attributes={"op0.weight": TABLE.half().numpy()}),
    Sample("F_embedding", F.embedding, (WORDS, TABLE)),
    Sample("F_embedding_bfloat16", F.embedding, (WORDS, TABLE.bfloat16())),
    Sample("F_embedding_of_a_scalar", F.embedding, (torch.tensor(2), TABLE),
           param=written({"i": torch.tensor(2), "w": TABLE}, "F.embedding i w -> y scale_grad_by_freq=False sparse=False")),
    Sample("F_embedding_empty", F.embedding, (torch.zeros(2, 0, dtype=torch.long), TABLE)),
    Sample("nn_EmbeddingBag", nn.EmbeddingBag(7, 3, mode="mean"), (WORDS,)),
    Sample("nn_EmbeddingBag_max", nn.EmbeddingBag(7, 3, mode="max"), (WORDS,)),
    Sample("F_embedding_bag", lambda w, i: F.embedding_bag(i, w, mode="sum"), (TABLE, WORDS)),
    bag("sum"), bag("mean"), bag("max"), bag("sum", weighted=True), bag("sum", closed=True), bag("mean", closed=True),
    bag("max", closed=True), bag("sum", padding=3), bag("mean", padding=3), bag("max", padding=3), bag("mean", padding=-1),
]  # fmt: skip
