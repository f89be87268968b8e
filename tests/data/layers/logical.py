"""Samples of logical and bitwise operators."""

from __future__ import annotations

import torch
from record import Sample

A = torch.tensor([[True, False, True], [False, False, True]])
B = torch.tensor([True, True, False])
INTS = torch.tensor([[12, -7, 0], [255, 1, -128]])
J = torch.tensor([10, 3, 5])
X = torch.tensor([[0.0, float("nan"), 2.0], [-0.0, 1.0, float("inf")]])
C = torch.tensor([0j, 1j, 2 + 0j])

SAMPLES = [
    Sample(
        "logical",
        lambda a, b: (torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_xor(a, b), torch.logical_not(a)),
        (A, B),
    ),
    Sample(
        "logical_of_numbers",
        lambda i, x, c: (
            torch.logical_and(i, x),
            torch.logical_or(x, c),
            torch.logical_xor(i, x),
            torch.logical_not(x),
            torch.logical_not(i),
            torch.logical_not(c),
        ),
        (INTS, X, C),
    ),
    Sample("logical_empty", lambda e, x: (torch.logical_and(e, x[0]), torch.logical_not(e)), (torch.zeros(0, 3), X)),
    Sample(
        "bitwise",
        lambda i, j: (torch.bitwise_and(i, j), torch.bitwise_or(i, j), torch.bitwise_xor(i, j), torch.bitwise_not(i)),
        (INTS, J),
    ),
    Sample(
        "bitwise_of_bools",
        lambda a, b: (
            torch.bitwise_and(a, b),
            torch.bitwise_or(a, b),
            torch.bitwise_xor(a, b),
            torch.bitwise_not(a),
            ~a,
        ),
        (A, B),
    ),
    Sample(
        "bitwise_mixed",
        lambda a, i, u: (
            torch.bitwise_and(a, i),
            torch.bitwise_or(u, i.int()),
            torch.bitwise_xor(u, 7),
            torch.bitwise_not(u),
        ),
        (A, INTS, INTS.to(torch.uint8)),
    ),
    Sample(
        "shifts",
        lambda i, j: (
            torch.bitwise_left_shift(i, j),
            torch.bitwise_right_shift(i, j),
            torch.bitwise_left_shift(i, 2),
            torch.bitwise_right_shift(i, 1),
        ),
        (INTS, torch.tensor([1, 3, 70])),
    ),
    Sample(
        "shifts_of_bytes",
        lambda u, j: (torch.bitwise_left_shift(u, j), torch.bitwise_right_shift(u, j)),
        (INTS.to(torch.uint8), torch.tensor([1, 3, 9], dtype=torch.uint8)),
    ),
    Sample(
        "shifts_of_negative_int8",
        lambda u, j: (torch.bitwise_left_shift(u, j), torch.bitwise_right_shift(u, j)),
        (INTS.to(torch.int8), torch.tensor([1, 3, 9], dtype=torch.int8)),
    ),
]
