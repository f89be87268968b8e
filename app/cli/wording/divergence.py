"""What a comparison found, in words: a line for every recorded value, then the first that diverges, then NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import engine
from app.render.columns import aligned
from app.render.spelling import counted
from app.wording import printable

_TITLES = ("#", "operator", "type", "operand", "max error", "of scale", "")
_NUMBERS = frozenset({"#", "max error", "of scale"})


def report(comparison: engine.Comparison, about: str) -> str:
    """The whole text."""
    lines = [f"{about} · {counted(len(comparison.rows), 'recorded value')}", ""]
    lines += aligned([_TITLES, *map(_cells, comparison.rows)], _NUMBERS)
    lines += ["", *_verdict(comparison), *map(_birth, comparison.births)]
    return "\n".join([*map(printable, lines), ""])


def amount(difference: engine.Difference) -> str:
    """``max error 0.31, 12 % of the largest value``, or what keeps the two from being compared."""
    if difference.problem is not None:
        return difference.problem
    return f"max error {difference.max_abs:.3g}, {100 * difference.relative:.2g} % of the largest value"


def _cells(row: engine.ComparedValue) -> tuple[str, ...]:
    difference = row.difference
    operand = row.operand if row.output is None else f"{row.operand} ({row.output})"
    compared = difference.problem is None
    return (
        str(row.index),
        row.operator,
        row.type,
        operand,
        f"{difference.max_abs:.3g}" if compared else "–",
        f"{difference.relative:.2g}" if compared else "–",
        f"diverges: {difference.problem}" if not compared else "diverges" if difference.diverges else "ok",
    )


def _verdict(comparison: engine.Comparison) -> Iterator[str]:
    first = comparison.first
    if first is None:
        yield "no divergence"
        return
    place = f"operand {first.operand}" if first.output is None else f"{first.output}, operand {first.operand}"
    yield f"first divergence: {first.operator} ({first.type}), {place}: {amount(first.difference)}"
    others = [name for name in comparison.suspects if name != first.operator]
    if others:
        yield f"not recorded before it, so the cause may be there: {_some(others)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _birth(birth: engine.NonFiniteBirth) -> str:
    made = f"{birth.operator} ({birth.type}), operand {birth.operand}" + " out of infinities" * birth.from_infinity
    known = {None: "", True: "; the reference has it too", False: "; the reference has none there"}
    share = f"{birth.count} of {counted(birth.size, 'element')}"
    return f"first {birth.kind}: made by {made}: {share}{known[birth.in_reference]}"
