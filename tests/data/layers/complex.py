"""Samples of complex numbers and their parts."""

from __future__ import annotations

import torch
from record import Sample

A = torch.tensor([[1.0, -2.0], [0.0, float("inf")]])
B = torch.tensor([[3.0, 0.5], [-0.0, float("nan")]])
C = torch.complex(A, B)[:1]

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
]
