"""Samples of einsum, among them equations the converter damages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from record import Sample
from torch import Tensor
from written import written

A, B, M, V = torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(3, 4), torch.randn(4)
SQUARE = torch.randn(3, 3, 4)


def each(*equations: str) -> Callable[..., Any]:
    return lambda *operands: tuple(torch.einsum(equation, *operands) for equation in equations)


def by_hand(name: str, equation: str, original: str, *operands: Tensor, rtol: float = 1e-5) -> Sample:
    """An equation as the file spells it, against the one PyTorch evaluates."""
    names = "abcdef"[: len(operands)]
    text = written(dict(zip(names, operands, strict=True)), f"torch.einsum {' '.join(names)} -> y equation={equation}")
    return Sample(name, lambda *tensors: torch.einsum(original, *tensors), operands, param=text, rtol=rtol)


class SpectralProduct(torch.nn.Module):
    """Weights for every frequency, as neural operators have them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 6, 5, 4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bixy,ioxy->boxy", x, self.weight)


SAMPLES = [
    Sample(
        "products",
        each("bij,bjk->bik", "bij,bjk->ik", "bij,bjk->kb", "bij,cjk->bcik", "bij,bjk->bijk", "bij,bjk->b", "bij,bjk->"),
        (A, B),
    ),
    Sample("elementwise", each("bij,bij->bij", "bij,bij->bi", "bij,bij->ij", "bij,bij->", "bij,bij->jib"), (A, A + 1)),
    Sample("permutations_lose_their_output", each("ijk->kij", "ijk->jki", "ijk->ikj"), (A,)),
    Sample("one_operand", each("ijk->ij", "ijk->k", "ijk->", "ijk->kj", "...k->..."), (A,)),
    Sample("diagonals", each("iij->ij", "iij->j", "iij->ji", "iij->"), (SQUARE,)),
    Sample("trace", each("ii", "ii->i"), (SQUARE[:, :, 0],)),
    Sample("outer", each("i,j->ij", "i,j->ji", "i,i->i", "i,i"), (V, V)),
    Sample("three_operands", each("bij,bjk,ij->bk", "bij,bjk,lj->bikl", "bij,bjk,ij->"), (A, B, M)),
    Sample("four_operands", each("ij,kj,kl,il->ik"), (M, M, M, M)),
    Sample("diagonal_within_a_product", each("iij,ij->j", "iij,ij->i"), (SQUARE, M)),
    Sample("broadcast_of_ones", each("bij,bij->bij", "bij,bij->"), (A[:1], A)),
    Sample("ellipsis_in_front", each("...ij,...jk->...ik"), (A, B)),
    Sample("ellipsis_summed_over", each("...ij,...jk->ik"), (A, B)),
    Sample("ellipsis_of_one_operand", each("...ij->...ji", "...i->..."), (A,)),
    Sample("ellipsis_of_one_of_two", each("...ij,jk->...ik"), (A, B[0])),
    Sample("ellipsis_alone", each("...,...->..."), (A, A)),
    Sample(
        "ellipsis_kept_by_old_files",
        each("...ij,...jk->...ik"),
        (A, B),
        param=written({"a": A, "b": B}, "torch.einsum a b -> y equation=...ij,...jk->...ik"),
    ),
    by_hand(
        "ellipsis_of_different_widths", "ij,jk->ik", "...ij,...jk->...ik", torch.randn(2, 3, 4, 5), torch.randn(3, 5, 2)
    ),
    by_hand("implicit_output", "ij,jk", "ij,jk", M, B[0]),
    by_hand("implicit_output_with_ellipsis", "...ij,...kj", "...ij,...kj", A, A),
    by_hand("labels_beyond_z", "z{,{|->z|", "ij,jk->ik", M, B[0]),
    Sample(
        "integers",
        each("ij,kj->ik", "ij,ij->", "ij,kj->"),
        (torch.arange(6).reshape(2, 3), torch.arange(6).reshape(2, 3)),
    ),
    Sample("double", each("bij,bjk->bik"), (A.double(), B.double())),
    Sample("half", each("bij,bjk->bik"), (A.half(), B.half()), rtol=2e-3, atol=2e-3),
    Sample("bfloat16", each("bij,bjk->bik", "bij,bjk->"), (A.bfloat16(), B.bfloat16()), rtol=2e-2, atol=5e-2),
    Sample("complex", each("bij,bjk->bik"), (torch.complex(A, A), torch.complex(B, 1 - B))),
    Sample("complex_spectra", SpectralProduct(), (torch.randn(2, 3, 5, 4, dtype=torch.complex64),)),
    Sample(
        "complex_three",
        lambda a, b, c: torch.einsum("bix,iox,ko->bkx", a, b, c),
        tuple(torch.randn(*sizes, dtype=torch.complex64) for sizes in ((2, 3, 4), (3, 5, 4), (2, 5))),
    ),
    by_hand("empty", "ij,jk->ik", "ij,jk->ik", torch.zeros(3, 0), torch.zeros(0, 2)),
    Sample(
        "dynamic",
        each("bij,bjk->bik"),
        (A, B),
        [(torch.randn(1, 7, 4), torch.randn(1, 4, 2))],
        dynamic=(torch.randn(3, 6, 4), torch.randn(3, 4, 8)),
    ),
]
