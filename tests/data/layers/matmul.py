"""Samples of matrix products and of products of vectors and tensors."""

from __future__ import annotations

import torch
from record import Sample
from torch import Tensor
from written import written

A, B = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
M, N, V, W = torch.randn(3, 4), torch.randn(4, 5), torch.randn(4), torch.randn(3)
INTS = torch.arange(-6, 6).reshape(3, 4)
NAN = torch.tensor(float("nan"))


def vectors(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.dot(x, y),
        torch.vdot(x, y),
        torch.inner(x, y),
        torch.outer(x, y),
        torch.kron(x, y),
        torch.linalg.vecdot(x, y),
    )


FIRST, SECOND = torch.randn(3, 4, 8), torch.randn(3, 8, 4)


def experts(x: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Every row by the two of three experts that its gates prefer, as a language model sorts rows by expert."""
    weights, chosen = gates.softmax(-1).topk(2, -1)
    order = torch.argsort(chosen.flatten(), stable=True)
    ends = torch.histc(chosen.flatten()[order].float(), 3, 0, 2).cumsum(0, dtype=torch.int32)
    made = torch._grouped_mm(torch._grouped_mm(x[order // 2], FIRST, offs=ends).relu(), SECOND, offs=ends)
    made = made * weights.flatten()[order, None]
    return torch.zeros_like(made).index_copy(0, order, made).reshape(-1, 2, 4).sum(1)


def triangles(a, b):
    solve = torch.linalg.solve_triangular
    left = (solve(a, b, upper=upper, unitriangular=unit) for upper in (True, False) for unit in (True, False))
    return *left, solve(a, b.mT, upper=True, left=False), solve(a, b.mT, upper=False, left=False, unitriangular=True)


SAMPLES = [
    Sample(
        "matmul",
        lambda a, b: (torch.matmul(a, b), torch.matmul(a[:, None], b), torch.matmul(a, b[0]), torch.matmul(a[0], b)),
        (A, B),
    ),
    Sample(
        "matmul_vectors",
        lambda a, b, v: (torch.matmul(a, v), torch.matmul(v, b), torch.matmul(v, v), torch.matmul(a[0], v)),
        (A, B, V),
    ),
    Sample(
        "matmul_strided",
        lambda a, b: torch.matmul(a.permute(1, 2, 0), b.permute(2, 0, 1)),
        (torch.randn(2, 3, 4), torch.randn(2, 5, 3)),
    ),
    Sample(
        "matmul_expanded",
        lambda a, b: (torch.matmul(a.expand(6, 3, 4), b[0]), torch.matmul(a, b.expand(2, 4, 5))),
        (A[:1], B[:1]),
    ),
    Sample(
        "matmul_empty",
        lambda a, b, c: (a @ b, c @ a, a[0] @ b),
        (A[:, :0], B, A[:, :, :0]),
        param=written(
            {"a": A[:, :0], "b": B, "c": A[:, :, :0]},
            "torch.matmul a b -> x",
            "torch.matmul c a -> y",
            "Tensor.select a -> f dim=0 index=0",
            "torch.matmul f b -> z",
        ),
    ),
    Sample("matmul_double", lambda a, b: torch.matmul(a, b), (A.double(), B.double()), atol=1e-12),
    Sample("matmul_half", lambda a, b: torch.matmul(a, b), (A.half(), B.half()), rtol=2e-3, atol=2e-3),
    Sample("matmul_bfloat16", lambda a, b: torch.matmul(a, b), (A.bfloat16(), B.bfloat16()), rtol=1e-2, atol=1e-2),
    Sample(
        "matmul_integers", lambda a, b: (torch.matmul(a, b), torch.matmul(a[0], b[:, 0])), (INTS, INTS.t().contiguous())
    ),
    Sample(
        "matmul_bytes_wrap",
        lambda a, b: torch.matmul(a, b),
        ((INTS * 40).to(torch.uint8), (INTS.t() * 30).to(torch.uint8)),
    ),
    Sample(
        "grouped_mm",
        lambda a, b, ends, c: (torch._grouped_mm(a, b, offs=ends), torch._grouped_mm(c, b)),
        (torch.randn(9, 4), torch.randn(3, 4, 8), torch.tensor([2, 2, 9], dtype=torch.int32), torch.randn(3, 2, 4)),
    ),
    Sample("matmul_complex", lambda a, b: torch.matmul(a, b), (torch.complex(A, A + 1), torch.complex(B, B - 1))),
    Sample(
        "matmul_complex_any_rank",
        lambda a, b, c, d: (a @ b, b @ d, c @ b, d @ d, torch.bmm(a, b.expand(3, -1, -1))),
        (
            torch.randn(3, 2, 4, dtype=torch.complex64),
            torch.randn(4, 5, dtype=torch.complex64),
            torch.randn(4, dtype=torch.complex64),
            torch.randn(5, dtype=torch.complex64),
        ),
    ),
    Sample(
        "matmul_infinities",
        lambda a, b: torch.matmul(a, b),
        (torch.tensor([[float("inf"), 1.0], [0.0, 3.0]]), torch.tensor([[1.0, 0.0], [2.0, float("nan")]])),
    ),
    Sample(
        "matmul_dynamic",
        lambda a, b: torch.matmul(a, b),
        (A, B),
        [(torch.randn(1, 7, 4), torch.randn(1, 4, 2))],
        dynamic=(torch.randn(3, 6, 4), torch.randn(3, 4, 8)),
    ),
    Sample("mm_bmm_mv", lambda a, b, v: (torch.mm(a[0], b[0]), torch.bmm(a, b), torch.mv(a[1], v)), (A, B, V)),
    Sample(
        "addmm",
        lambda c, m, n: (
            torch.addmm(c, m, n),
            torch.addmm(c[0], m, n, beta=0.5, alpha=-2),
            torch.addmm(c * NAN, m, n, beta=0),
            torch.addmm(c[:, :1], m, n, alpha=0),
        ),
        (torch.randn(3, 5), M, N),
    ),
    Sample(
        "addmm_integers",
        lambda c, m, n: (torch.addmm(c, m, n), torch.addmm(c, m, n, beta=3, alpha=-2)),
        (torch.arange(9).reshape(3, 3), INTS, INTS.t().contiguous()),
    ),
    Sample(
        "addmm_bfloat16", torch.addmm, (torch.randn(3, 5).bfloat16(), M.bfloat16(), N.bfloat16()), rtol=2e-2, atol=2e-2
    ),
    Sample(
        "baddbmm",
        lambda c, a, b: (
            torch.baddbmm(c, a, b),
            torch.baddbmm(c[0], a, b, beta=0.5, alpha=2),
            torch.baddbmm(c[:, :1] * NAN, a, b, beta=0),
        ),
        (torch.randn(2, 3, 5), A, B),
    ),
    Sample(
        "baddbmm_dynamic",
        torch.baddbmm,
        (torch.randn(1), A, B),
        [(torch.randn(1), torch.randn(1, 7, 4), torch.randn(1, 4, 2))],
        dynamic=(torch.randn(1), torch.randn(3, 6, 4), torch.randn(3, 4, 8)),
    ),
    Sample(
        "addmv_addr_addbmm",
        lambda w, m, v, a, b: (
            torch.addmv(w, m, v),
            torch.addmv(w, m, v, beta=0.5, alpha=2),
            torch.addr(m, w, v),
            torch.addr(v, w, v, beta=0, alpha=3),
            torch.addbmm(b[0, :1], a, b),
            torch.addbmm(b[0, :1], a, b, beta=0.5, alpha=2),
        ),
        (W, M, V, A, B),
    ),
    Sample("vectors", vectors, (V, torch.randn(4))),
    Sample(
        "vectors_of_integers",
        lambda x, y: (torch.dot(x, y), torch.inner(x, y), torch.outer(x, y), torch.kron(x, y)),
        (INTS[0], INTS[1]),
    ),
    Sample("vectors_of_complex", vectors, (torch.complex(V, V + 1), torch.complex(V, V - 2))),
    Sample("vectors_of_bfloat16", vectors, (V.bfloat16(), V.bfloat16()), rtol=1e-2, atol=1e-2),
    Sample(
        "inner",
        lambda a, m, s: (torch.inner(a, m), torch.inner(m, a), torch.inner(a.sum(), m), torch.inner(m, s.sum())),
        (A, M, V),
    ),
    Sample("ger", lambda x, y: torch.ger(x, y), (V, W), param=written({"x": V, "y": W}, "aten::ger x y -> z")),
    Sample(
        "kron", lambda a, m: (torch.kron(a, m), torch.kron(m, a), torch.kron(m, m[0]), torch.kron(m.sum(), m)), (A, M)
    ),
    Sample(
        "tensordot",
        lambda a, b, m: (
            torch.tensordot(a, b, dims=([1, 2], [0, 1])),
            torch.tensordot(a, m.t(), dims=1),
            torch.tensordot(m, m, dims=([1, 0], [1, 0])),
            torch.tensordot(m, a, dims=0),
            torch.tensordot(a, a, dims=([-1, 0], [-1, 0])),
        ),
        (A, torch.randn(3, 4, 5), M),
    ),
    Sample(
        "cross",
        lambda a, b: (
            torch.cross(a, b),
            torch.cross(a, b, dim=0),
            torch.cross(a[:, 0], b[:, 0]),
            torch.cross(a[:1], b, dim=1),
        ),
        (torch.randn(3, 3, 5), torch.randn(3, 3, 5)),
    ),
    Sample("cross_first_axis_of_three", lambda a, b: torch.cross(a, b), (torch.randn(2, 3, 3), torch.randn(2, 3, 3))),
    Sample("cross_integers", lambda a, b: torch.cross(a, b), (INTS.t().contiguous(), INTS.t().contiguous() + 1)),
    Sample(
        "linalg_cross",
        lambda a, b: (torch.linalg.cross(a, b), torch.linalg.cross(a, b, dim=0)),
        (torch.randn(3, 3), torch.randn(3, 3)),
    ),
    Sample("linalg_vecdot", lambda a, m: (torch.linalg.vecdot(a, m), torch.linalg.vecdot(a, a, dim=0)), (A, M)),
    Sample(
        "chain",
        lambda m, n, w: (
            torch.linalg.multi_dot([w, m, n]),
            torch.linalg.multi_dot([m, n, n.t(), n]),
            torch.chain_matmul(m, n, n.t()),
        ),
        (M, N, W),
    ),
    Sample("mixture_of_experts", experts, (torch.randn(6, 4), torch.randn(6, 3))),
    Sample(
        "matrix_power",
        lambda x: tuple(torch.linalg.matrix_power(x, n) for n in (0, 1, 2, 5)),
        (torch.randn(2, 3, 3),),
    ),
    Sample("matrix_power_of_integers", lambda x: torch.matrix_power(x, 3), (torch.randint(-3, 4, (3, 3)),)),
    Sample(
        "matrix_exp",
        lambda x: (torch.linalg.matrix_exp(x), torch.matrix_exp(x[0] * 0), torch.matrix_exp(x * 4)),
        (torch.randn(2, 3, 3),),
    ),
    Sample("matrix_exp_double", torch.linalg.matrix_exp, (torch.randn(4, 4).double(),)),
    Sample("solve_triangular", triangles, (torch.randn(2, 4, 4) + 4 * torch.eye(4), torch.randn(2, 4, 3))),
    Sample("solve_triangular_spread", triangles, (torch.randn(3, 1, 4, 4) + 4 * torch.eye(4), torch.randn(2, 4, 1))),
    Sample(
        "solve_triangular_double",
        triangles,
        (torch.randn(5, 5).double() + 4 * torch.eye(5), torch.randn(5, 2).double()),
        rtol=1e-12,
    ),
    Sample("solve_triangular_one", triangles, (torch.full((1, 1), 2.0), torch.ones(1, 1))),
    Sample("solve_triangular_nothing", triangles, (torch.zeros(2, 0, 0), torch.zeros(0, 3))),
    Sample(
        "solve_triangular_singular",
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        (torch.tensor([[0.0, 7.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])),
    ),
    Sample(
        "solve_triangular_open",
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        (torch.randn(1, 3, 3) + 4 * torch.eye(3), torch.randn(1, 3, 2)),
        further=((torch.randn(2, 3, 3) + 4 * torch.eye(3), torch.randn(2, 3, 5)),),
        dynamic=(torch.randn(4, 3, 3), torch.randn(4, 3, 4)),
    ),
]
