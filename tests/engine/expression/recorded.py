"""PyTorch's recorded answers to every function, and how the engine's are compared with them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from engine.errors import EngineError
from engine.expression import evaluate, infer, parse
from engine.tensor import BFLOAT16, DTYPES, Array, spec_of

DATA = Path(__file__).parents[2] / "data" / "expression"
# One unit in the last place for the halves, where every result is rounded; a few elsewhere.
RELATIVE = {"f32": 8e-7, "f64": 5e-15, "f16": 2**-10, "bf16": 2**-7, "c64": 2e-6, "c128": 2e-14}
# The error of a sum of terms of size one is not relative to the sum; PyTorch's erf of halves is good to 1e-7.
ABSOLUTE = {"f32": 5e-7, "f64": 1e-15, "f16": 2e-7, "bf16": 2e-7, "c64": 1e-6, "c128": 1e-15}
UNSIGNED_ZEROS = ("max", "min", "maximum", "minimum")  # the larger of 0.0 and -0.0 is either


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An expression, its operands by name, and what PyTorch answered; None where it refused."""

    text: str
    names: tuple[str, ...]
    answer: Array | None

    @property
    def group(self) -> str:
        return f"{self.text.partition('(')[0]}-{self.names[0].partition('.')[2]}"

    @property
    def operands(self) -> list[Array]:
        return [arrays()[name] for name in self.names]

    def __str__(self) -> str:
        return f"{self.text} of {', '.join(self.names)}"


@cache
def arrays() -> dict[str, Array]:
    with np.load(DATA / "answers.npz") as archive:
        given = {name: archive[name] for name in archive.files}
    for name, array in given.items():
        given[name] = array.view(BFLOAT16) if name.endswith(".bf16") else array
        given[name].setflags(write=False)
    return given


@cache
def groups() -> dict[str, list[Case]]:
    """The cases of each function and dtype of the first operand."""
    found: dict[str, list[Case]] = {}
    for case in _cases():
        found.setdefault(case.group, []).append(case)
    return found


def _cases() -> Iterator[Case]:
    for text, names, code, *place in json.loads((DATA / "answers.json").read_text()):
        answer = None
        if code is not None:
            shape, offset = place
            answer = arrays()[f"out.{code}"][offset : offset + math.prod(shape)].reshape(shape)
        yield Case(text=text, names=tuple(names), answer=answer)


def disagreements(group: str) -> list[str]:
    """Return the engine's wrong results, one line a case."""
    return [f"{case}: {problem}" for case in groups()[group] if (problem := _problem(case))]


def _problem(case: Case) -> str:
    try:
        value = evaluate(parse(case.text), case.operands)
    except EngineError as error:
        return "" if case.answer is None else f"refused, {error}"
    if case.answer is None:
        return f"answered {value}, PyTorch refuses"
    if not isinstance(value, np.ndarray) or spec_of(value) != spec_of(case.answer):
        return f"found {spec_of(value)}, expected {spec_of(case.answer)}"
    wrong = _wrong(value, case.answer, signed=case.group.partition("-")[0] not in UNSIGNED_ZEROS)
    return f"found {value[wrong]}, expected {case.answer[wrong]}" if wrong.any() else ""


def _wrong(value: Array, answer: Array, *, signed: bool) -> Array:
    code = next(code for code, dtype in DTYPES.items() if dtype == answer.dtype and code != "c32")
    if code not in RELATIVE:
        return np.asarray(value != answer)
    is_complex = code in ("c64", "c128")
    wide = np.complex128 if is_complex else np.float64
    close = np.isclose(value.astype(wide), answer.astype(wide), RELATIVE[code], ABSOLUTE[code], equal_nan=True)
    if signed and not is_complex:
        zeros = (value == 0) & (answer == 0)
        close &= ~zeros | (np.signbit(value) == np.signbit(answer))
    return np.asarray(~close)


def false_announcements(group: str) -> list[str]:
    """Return contradictions of infer() and evaluate(), one line a case."""
    return [f"{case}: {problem}" for case in groups()[group] if (problem := _contradiction(case))]


def _contradiction(case: Case) -> str:
    specs = [spec_of(operand) for operand in case.operands]
    try:
        announced = infer(parse(case.text), specs)
    except EngineError as error:
        return "" if case.answer is None else f"refused, {error}"
    if case.answer is None:  # only the values of integer divisors decide later
        return "" if case.text.startswith(("floor_divide", "remainder", "fmod")) else f"announced {announced}"
    return "" if announced == spec_of(case.answer) else f"announced {announced}, PyTorch gave {spec_of(case.answer)}"
