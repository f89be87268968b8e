"""Division of strings into tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.control.text import filled, texts
from engine.layers.operands.conversion import STRING
from engine.limits import check_size
from engine.tensor import Array, TensorSpec, format_shape

_START, _END = "\x02", "\x03"
_ONE: Final = r"(?:\\[wWdDsS.]|\[(?:\\.|[^\\\[\]])+\]|[^\\^$*+?{}()|\[\]])"
# Patterns that take time in proportion to the text: characters or classes, of which the last may be repeated.
_LINEAR: Final = re.compile(rf"(?:\\b)?{_ONE}*(?:{_ONE}\+?|\\w\+?\\b)", re.DOTALL)


@register("Tokenizer")
class Tokenizer(Layer):
    r"""Tokens of each string, padded to the same number.

    The core has no strings. As in RE2, which onnxruntime uses, ``\w`` is an ASCII letter, digit or underscore.

    Shapes:
        input (C,) or (N, C)  ->  (C, most) or (N, C, most)

    Parameters:
        mark: whether the control characters 2 and 3 stand before and behind the tokens.
        mincharnum: shorter tokens are left out.
        pad_value: padding.
        separators: patterns between tokens; one that is empty makes a token of each character.
        tokenexp: pattern of a token, in place of separators; one dot makes a token of each character.
    """

    mark: bool
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] = ()
    tokenexp: str = ""

    def __post_init__(self) -> None:
        if bool(self.tokenexp) == bool(self.separators):
            raise ParameterError("found both or none of tokenexp and separators", expected="one of them")
        for pattern in self._patterns:
            _compiled(pattern)

    @property
    def _patterns(self) -> tuple[str, ...]:
        """Return the patterns; none if each character is a token."""
        if self.tokenexp == "." or self.separators == ("",):
            return ()
        return (self.tokenexp,) if self.tokenexp else self.separators

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.rank not in (1, 2):
            raise ShapeError("no list or table of texts", found=format_shape(input.shape), expected="[C] or [N, C]")
        return TensorSpec((*input.shape, None), STRING)

    def forward(self, input: Array) -> Array:
        patterns = [_compiled(each) for each in self._patterns]
        rows = [self._tokens(str(each), patterns) for each in cancellable(texts(input, "input").flat)]
        if self.mark and any(rows):
            rows = [[_START, *row, _END] for row in rows]
        shape = (*input.shape, max(map(len, rows), default=0))
        check_size(shape, STRING)
        return filled(shape, [each for row in rows for each in (*row, *[self.pad_value] * (shape[-1] - len(row)))])

    def _tokens(self, text: str, patterns: Sequence[re.Pattern[str]]) -> list[str]:
        if self.tokenexp or not patterns:
            found = patterns[0].findall(text) if patterns else list(text)
        else:
            found = [text]
            for pattern in patterns:
                found = [part for each in found for part in pattern.split(each) if part]
        return [each for each in found if len(each) >= self.mincharnum]


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern.

    Raises:
        ParameterError: matching it could take more time than in proportion to the text.
    """
    expected = "characters and classes, of which the last one may be repeated by +"
    if _LINEAR.fullmatch(pattern) is None:
        raise ParameterError("a pattern that is not supported", found=pattern, expected=expected)
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as exc:
        raise ParameterError(f"a pattern that is not supported: {exc}", found=pattern, expected=expected) from None
