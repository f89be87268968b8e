"""Inputs of an export: shapes and dtypes, as written on a command line and for the converter.

A shape is ``1,3,224,224``, optionally in brackets, followed by a dtype that is not the default: ``[1,77]i64``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from exporter.errors import ExportError

# The converter's code -> the name in torch and numpy.
DTYPES: Final = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
_CODES: Final = {**{name: code for code, name in DTYPES.items()}, **{code: code for code in DTYPES}}
_HALF: Final = ("f16", "bf16")
_TEXT: Final = re.compile(r"\[?(?P<shape>[\d,\s]*)\]?\s*(?P<dtype>[a-z]\w*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """Input of the model: its shape, and its dtype by the converter's code (``f32``)."""

    shape: tuple[int, ...]
    dtype: str = "f32"

    def __str__(self) -> str:
        """Return the text for the converter: ``[1,3,224,224]f32``."""
        return f"[{','.join(map(str, self.shape))}]{self.dtype}"

    @property
    def without_half(self) -> InputSpec:
        """The same input, with half precision replaced by single."""
        return InputSpec(shape=self.shape, dtype="f32") if self.dtype in _HALF else self


def parse_inputs(shapes: Sequence[str], dtypes: Sequence[str] = ()) -> tuple[InputSpec, ...]:
    """Return the inputs from their texts.

    Args:
        shapes: one text an input.
        dtypes: none, one for all inputs, or one an input; a dtype after a shape takes precedence.

    Raises:
        ExportError: a text is not a shape or dtype, or their numbers do not fit.
    """
    if len(dtypes) not in (0, 1, len(shapes)):
        raise ExportError(
            "wrong number of dtypes", found=len(dtypes), expected=f"one for all, or {len(shapes)}, one an input"
        )
    spread = list(dtypes) * len(shapes) if len(dtypes) == 1 else list(dtypes) or ["f32"] * len(shapes)
    return tuple(_parse(shape, dtype) for shape, dtype in zip(shapes, spread, strict=True))


def check_second(first: Sequence[InputSpec], second: Sequence[InputSpec]) -> None:
    """Refuse second shapes that cannot belong to the same model.

    Raises:
        ExportError: another number of inputs, of dimensions or another dtype; or nothing differs.
    """
    if len(first) != len(second):
        raise ExportError("wrong number of second shapes", found=len(second), expected=f"{len(first)}, one an input")
    for a, b in zip(first, second, strict=True):
        if len(a.shape) != len(b.shape) or a.dtype != b.dtype:
            raise ExportError(
                "a second shape is not of the same rank and dtype", found=b, expected=f"the rank and dtype of {a}"
            )
    if tuple(first) == tuple(second):
        raise ExportError(
            "the second shapes equal the first", found="no difference", expected="every dynamic dimension to differ"
        )


def _parse(text: str, dtype: str) -> InputSpec:
    match = _TEXT.fullmatch(text.strip())
    if match is None or (match["dtype"] and not match["shape"] and "[" not in text):
        raise ExportError("not a shape", found=f"'{text}'", expected="sizes such as 1,3,224,224 or [1,77]i64")
    sizes = [size.strip() for size in match["shape"].split(",")]
    if sizes == [""]:
        raise ExportError("an input without dimensions", expected="at least one: the converter has no scalar inputs")
    if not all(size.isdigit() and int(size) > 0 for size in sizes):
        raise ExportError("not a shape", found=f"'{text}'", expected="sizes such as 1,3,224,224, all positive")
    return InputSpec(shape=tuple(map(int, sizes)), dtype=_code(match["dtype"] or dtype))


def _code(dtype: str) -> str:
    code = _CODES.get(dtype.removeprefix("torch."))
    if code is None:
        raise ExportError("unknown dtype", found=f"'{dtype}'", expected=f"one of {', '.join(DTYPES.values())}")
    return code
