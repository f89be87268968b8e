"""Samples of complex numbers and their parts."""

from __future__ import annotations

import torch
from record import Sample

A = torch.tensor([[1.0, -2.0], [0.0, float("inf")]])
B = torch.tensor([[3.0, 0.5], [-0.0, float("nan")]])
C = torch.complex(A, B)[:1]

U, V = torch.randn(3, 4, 5, dtype=torch.complex64), torch.randn(4, 5, dtype=torch.complex64)
ANGLES = torch.polar(torch.ones(6, 4), torch.arange(24.0).reshape(6, 4) / 5)[:, None]


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Pairs of features turned by an angle that grows with their place, as rotary embeddings do."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * ANGLES).flatten(3)


SAMPLES = [
    Sample("complex", lambda a, b: torch.complex(a, b), (A, B)),
    Sample("complex_double_broadcast", lambda a, b: torch.complex(a, b), (A.double(), B[0].double())),
    Sample("real_imag", lambda c: (torch.real(c), torch.imag(c), c.real + c.imag), (C,)),
    Sample("real_of_real", lambda x: torch.real(x) + 1, (A,)),
    Sample("view_as_real", lambda c: torch.view_as_real(c), (C,)),
    Sample("view_as_complex", lambda x: torch.view_as_complex(x), (torch.randn(3, 4, 2),)),
    Sample("view_as_complex_double", lambda x: torch.view_as_complex(x), (torch.randn(2, 2, dtype=torch.float64),)),
    Sample(
        "conj",
        lambda c, x: (torch.conj(c), c.conj().resolve_conj() * 1j, torch.conj(x) + 1, torch.conj_physical(c)),
        (C, A),
    ),
    Sample("polar", lambda r, t: torch.polar(r, t), (A[0].abs(), B[0])),
    Sample("abs_angle", lambda c: (torch.abs(c), torch.angle(c)), (C,)),
    Sample("rotary", rotated, (torch.randn(2, 6, 3, 8),)),
    Sample(
        "complex_arithmetic",
        lambda a, b: ((a + b * 2.5) / (b - a), torch.square(a) * -a + torch.reciprocal(b), a - a.conj() * b),
        (U, V),
    ),
    Sample("complex_with_real", lambda a, x: (a * x, x - a, a / (x + 3), a * 0.5 + 1), (U, torch.rand(4, 5))),
    Sample(
        "magnitudes",
        lambda a, b: (torch.abs(a * b) + 1, torch.log1p(torch.abs(a)), torch.abs(a) * torch.angle(b), torch.sgn(a)),
        (U, V),
    ),
    Sample(
        "complex_not_finite",
        lambda a: (a * a, torch.abs(a), torch.sgn(a), a.conj() * 2),
        (torch.complex(torch.tensor([float("inf"), 0.0, -1.0, 2.0]), torch.tensor([1.0, float("nan"), -0.0, 0.0])),),
    ),
    Sample("pairs_apart", lambda x: torch.view_as_complex(x[:, 1:, 2:4]) * 2, (torch.randn(3, 5, 6),)),
]
