"""Samples of distances and similarities; torch.norm is among the reductions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

A, B = torch.randn(3, 4), torch.randn(3, 4)
INFINITY = float("inf")
ROWS, MANY = torch.randn(2, 3, 4), torch.randn(2, 30, 4)

SAMPLES = [
    Sample(
        "pairwise_distance",
        lambda a, b: (
            F.pairwise_distance(a, b),
            F.pairwise_distance(a, b, 1.0),
            F.pairwise_distance(a, b, INFINITY),
            F.pairwise_distance(a, b, 3.0, 0.1, True),
            F.pairwise_distance(a, b, 0.5),
            F.pairwise_distance(a, b, -INFINITY),
        ),
        (A, B),
    ),
    Sample(
        "pairwise_distance_broadcast",
        lambda a, b: (F.pairwise_distance(a, b[0]), F.pairwise_distance(a[0], b[0])),
        (A, B),
    ),
    Sample("pairwise_distance_counts", lambda a, b: F.pairwise_distance(a, b, 0.0, 0.0), (A, A.round())),
    Sample("nn_PairwiseDistance", nn.PairwiseDistance(p=3, keepdim=True), (A, B)),
    Sample("pairwise_distance_double", F.pairwise_distance, (A.double(), B.double())),
    Sample("pairwise_distance_bfloat16", F.pairwise_distance, (A.bfloat16(), B.bfloat16()), rtol=2e-2),
    Sample(
        "pairwise_distance_dynamic",
        F.pairwise_distance,
        (A, B),
        [(A[:1], B[:1])],
        dynamic=(torch.randn(5, 4), torch.randn(5, 4)),
    ),
    Sample(
        "cosine_similarity",
        lambda a, b: (
            F.cosine_similarity(a, b),
            F.cosine_similarity(a, b, 0),
            F.cosine_similarity(a, b[:1], -1, 0.9),
            F.cosine_similarity(a * 0, b),
            F.cosine_similarity(a[0], b[0], 0),
        ),
        (A, B),
    ),
    Sample("nn_CosineSimilarity", nn.CosineSimilarity(2), (ROWS, ROWS.flip(1))),
    Sample("cosine_similarity_bfloat16", F.cosine_similarity, (A.bfloat16(), B.bfloat16()), rtol=2e-2, atol=1e-2),
    Sample(
        "cosine_similarity_dynamic",
        F.cosine_similarity,
        (A, B),
        [(A[:1], B[:1])],
        dynamic=(torch.randn(5, 6), torch.randn(5, 6)),
    ),
    Sample(
        "cdist",
        lambda a, b: (
            torch.cdist(a, b),
            torch.cdist(a, b, 1.0),
            torch.cdist(a, b, INFINITY),
            torch.cdist(a, b, 3.0),
            torch.cdist(a, b, 0.0),
        ),
        (ROWS, torch.randn(2, 5, 4)),
    ),
    Sample(
        "cdist_of_many_rows",
        lambda a, b: (
            torch.cdist(a, b),
            torch.cdist(b, a),
            torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"),
        ),
        (ROWS, MANY),
        atol=1e-5,
    ),
    Sample(
        "cdist_by_products",
        lambda a, b: torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist"),
        (ROWS, ROWS + 1),
        atol=1e-5,
    ),
    Sample("cdist_broadcast", lambda a, b: torch.cdist(a, b), (ROWS[:, None], torch.randn(3, 5, 4))),
    Sample(
        "cdist_dynamic",
        lambda a, b: torch.cdist(a, b),
        (ROWS, ROWS),
        [(ROWS[:1], MANY[:1])],
        dynamic=(torch.randn(3, 6, 4), torch.randn(3, 7, 4)),
        atol=1e-5,
    ),
    Sample(
        "pdist", lambda a: (F.pdist(a), F.pdist(a, 1.0), F.pdist(a, INFINITY), F.pdist(a, 3.0)), (torch.randn(5, 3),)
    ),
]
