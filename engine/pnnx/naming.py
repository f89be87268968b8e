"""Operator names: unique in a graph, though optimisation level 0 repeats the name of a module that is used twice.

The first operator of a name keeps it; the next ones are called ``name_1``, ``name_2``, ... passing over names the file
has anyway. What they are called in the file is kept, so that they are written as they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.pnnx.graph import Operator


def unique_names(written: Sequence[str]) -> list[str]:
    """A name of its own for every operator, from the names in the file."""
    taken, numbers, names = set(written), dict.fromkeys(written, -1), []
    for name in written:
        unique = name
        numbers[name] += 1
        while numbers[name] and (unique := f"{name}_{numbers[name]}") in taken:
            numbers[name] += 1
        taken.add(unique)
        names.append(unique)
    return names


def named_apart(operators: Sequence[Operator]) -> list[Operator]:
    """The operators of a file, each under a name of its own."""
    pairs = zip(operators, unique_names([operator.name for operator in operators]), strict=True)
    return [op if op.name == name else replace(op, name=name, written=op.name) for op, name in pairs]


def written_names(operators: Sequence[Operator]) -> list[str]:
    """What to call every operator in a file, so that reading gives the names they have.

    They are written as they were read where that is possible; it is not where one that bore the name first is gone.
    """
    names = [operator.name for operator in operators]
    written = [operator.written or operator.name for operator in operators]
    return written if unique_names(written) == names else names
