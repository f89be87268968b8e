"""What a run gave, in words: a line for every output, a line for every prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.models.request import InferResult
from app.render.spelling import shortened, time_text
from app.tasks.task import Finding
from app.wording import printable

_MOST_CHARACTERS = 60
_UNSAID = ("label", "index", "color")


def report(result: InferResult, items: Sequence[str], about: str) -> str:
    """The whole text; items are what the predictions of a batch are of."""
    lines = [f"{about} · {time_text(result.timing.infer_s * 1e6)}"]
    width = max(map(len, result.outputs), default=0)
    lines += [f"{name.ljust(width)}  {statistics(array)}" for name, array in result.outputs.items()]
    lines += _predictions(result.predictions or [], items)
    return "\n".join([*map(printable, lines), ""])


def statistics(array: NDArray[Any]) -> str:
    """``[1, 10] float32  min -4.02  max 9.87  mean 0.31``, over the finite values; NaN and infinities are counted."""
    head = f"{list(array.shape)} {array.dtype.name}"
    if array.dtype.kind == "c":
        return f"{head}  magnitudes: {_numbers(np.abs(array))}"
    return f"{head}  {_numbers(array)}"


def _numbers(array: NDArray[Any]) -> str:
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    parts = [f"{name} {float(of(finite)):.6g}" for name, of in _FIGURES if finite.size]
    parts += [f"{name} {int(count)}" for name, count in _oddities(values) if count]
    return "  ".join(parts) or "empty"


_FIGURES = (("min", np.min), ("max", np.max), ("mean", np.mean))


def _oddities(values: NDArray[np.float64]) -> tuple[tuple[str, int], ...]:
    return ("NaN", int(np.isnan(values).sum())), ("infinite", int(np.isinf(values).sum()))


def _predictions(findings: Sequence[Finding], items: Sequence[str]) -> Iterator[str]:
    for number, finding in enumerate(findings):
        yield ""
        yield f"{items[number]}:" if number < len(items) else f"item {number + 1}:"
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    """A line for each of a list; an object has a list of classes, or is a picture."""
    if isinstance(finding, dict) and "classes" not in finding:
        yield f"  a picture of {finding['width']}x{finding['height']}"
        return
    found = finding["classes"] if isinstance(finding, dict) else finding
    labels = [str(prediction.get("label", "")) for prediction in found]
    width = max(map(len, labels), default=0)
    yield from (
        f"  {rank}. {label.ljust(width)}  {_rest(prediction)}".rstrip()
        for rank, (label, prediction) in enumerate(zip(labels, found, strict=True), 1)
    )
    if not found:
        yield "  nothing found"


def _rest(prediction: Mapping[str, Any]) -> str:
    return "  ".join(f"{key} {_value(value)}" for key, value in prediction.items() if key not in _UNSAID)


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else shortened(str(value), _MOST_CHARACTERS)
