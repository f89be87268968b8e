"""A long graph as few boxes by the names of its operators: what belongs to one module of the network is one fold.

Names are paths where the converter kept them (``layer1.0.conv1``, ``/layer1/layer1.0/conv1/Conv``). An operator without
one, such as a sum, belongs to the module that those before and behind it have in common.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from app.console.folding import Fold, find_runs

Path = tuple[str, ...]
# The least share and number of units that need a path of their own for names to be worth folding by.
_LEAST_SHARE: Final = 0.3
_LEAST_UNITS: Final = 2
# Deeper than modules are nested.
_DEEPEST: Final = 12
# Names the converter has made up.
_MADE_UP: Final = ("F.", "torch.", "nn.", "Tensor.", "pnnx", "node_", "val_")
_ENDING: Final = re.compile(r"_\d+$")


def module_of(name: str) -> Path | None:
    """The module that an operator's name says it is of, or is; None where it says nothing."""
    if name.startswith(_MADE_UP):
        return None
    if name.startswith("/"):  # every scope repeats the one around it, and the operator's type is the last word
        found: list[str] = []
        for word in name.strip("/").split("/")[:-1]:
            found += _ENDING.sub("", word).removeprefix(".".join(found) + ".").split(".")
        return tuple(found) or None
    return tuple(name.split(".")[:-1]) or None


def find_modules(
    paths: Sequence[Path | None], signature: Callable[[Fold], str], is_apart: Callable[[int], bool]
) -> tuple[Fold, ...] | None:
    """The outermost folds, in order; None where too few names are paths.

    Args:
        paths: of every unit.
        signature: what is equal of folds that are alike.
        is_apart: whether a unit belongs to none: inputs and outputs.
    """
    if sum(path is not None for path in paths) < max(_LEAST_UNITS, _LEAST_SHARE * len(paths)):
        return None
    full = _filled(paths, is_apart)
    return _find(full, signature, 0, len(full) - 1, 0)


def _filled(paths: Sequence[Path | None], is_apart: Callable[[int], bool]) -> list[Path]:
    """A path for every unit: what its neighbours share, where it has none."""
    before, behind = list[Path](), list[Path]()
    for found, turn in ((before, range(len(paths))), (behind, range(len(paths) - 1, -1, -1))):
        last: Path = ()
        for at in turn:
            last = paths[at] or last
            found.append(last)
    behind.reverse()
    return [
        () if is_apart(at) else path or _shared(before[at], behind[at])
        for at, path in enumerate(paths)
    ]  # fmt: skip


def _shared(one: Path, other: Path) -> Path:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return one[: (*same, False).index(False)]


def _find(
    paths: Sequence[Path], signature: Callable[[Fold], str], first: int, last: int, depth: int
) -> tuple[Fold, ...]:
    """Folds of a stretch whose paths are the same down to a depth."""
    if depth >= _DEEPEST:
        return ()
    items, at = list[Fold](), first
    while at <= last:
        end = at
        while end < last and paths[at][depth : depth + 1] == paths[end + 1][depth : depth + 1] != ():
            end += 1
        if (at, end) == (first, last) and end > at:
            return _find(paths, signature, first, last, depth + 1)
        inner = _find(paths, signature, at, end, depth + 1) if end > at else ()
        items.append(Fold(at, end, 1, inner))
        at = end + 1
    return find_runs(items, [_alike(item, paths, signature, depth) for item in items])


def _alike(item: Fold, paths: Sequence[Path], signature: Callable[[Fold], str], depth: int) -> str:
    """Of modules of a list, which have numbers for names, what makes them alike; others are like none."""
    word = paths[item.first][depth : depth + 1]
    # What stands between two of them belongs to the list itself.
    is_alike = not word or (item.length > 1 and word[0].isdigit())
    return f"{'.'.join(paths[item.first][:depth])} {signature(item)}" if depth and is_alike else f"only {item.first}"
