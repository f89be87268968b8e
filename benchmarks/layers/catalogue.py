"""Catalogue of cases, and the families of recorded samples without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.layers import elements, images, sequences
from benchmarks.layers.case import Case

CASES: Final[tuple[Case, ...]] = (*elements.CASES, *images.CASES, *sequences.CASES)

# Families of tests/data/layers without a case, and why.
LEFT_OUT: Final = {
    "deform": "PyTorch's own kernel is in torchvision",
    "levels": "whole models at lower optimisation levels",
    "onnx_nodes": "operators of another standard, most of which are PyTorch's own layers here",
    "randomness": "two generators draw different numbers, so their answers cannot be compared",
    "sharing": "modules measured here, which share parameters",
    "size_arithmetic": "sizes, not elements",
    "spellings": "other spellings of operators measured here",
}


def select(wanted: Sequence[str]) -> list[Case]:
    """Return the cases with one of these texts in family or name; without texts all.

    Raises:
        ValueError: no case has it.
    """
    for text in wanted:
        if not any(text in f"{case.family} {case.name}" for case in CASES):
            raise ValueError(f"no case has '{text}' in its family or name")
    return [case for case in CASES if not wanted or any(text in f"{case.family} {case.name}" for text in wanted)]
