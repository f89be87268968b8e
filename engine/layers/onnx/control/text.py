"""String operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.dtypes import onnx_dtype
from engine.layers.operands.conversion import STRING
from engine.layers.operands.precision import INT64
from engine.limits import check_size
from engine.promotion import broadcast_shapes
from engine.tensor import Array, DType, TensorSpec, format_shape

_FLOAT32: Final[DType] = np.dtype(np.float32)


def texts(value: Any, name: str) -> Array:
    """Return an operand of strings.

    Raises:
        ShapeError: it holds numbers.
    """
    array = np.asarray(value)
    if array.dtype != STRING:
        raise ShapeError(f"{name} is no text", found=str(array.dtype))
    return array


def filled(shape: Sequence[int], items: Sequence[Any]) -> Array:
    array = np.empty(tuple(shape), STRING)
    array.reshape(-1)[:] = list(items)
    return array


@register("StringConcat")
class StringConcat(Layer):
    """Elementwise concatenation of strings, with broadcasting.

    The core has no strings.
    """

    def infer(self, a: TensorSpec, b: TensorSpec) -> TensorSpec:
        return TensorSpec(broadcast_shapes(a.shape, b.shape), STRING)

    def forward(self, a: Array, b: Array) -> Array:
        left, right = np.broadcast_arrays(texts(a, "a"), texts(b, "b"))
        check_size((sum(len(m) + len(n) for m, n in zip(left.flat, right.flat, strict=True)),), np.dtype(np.uint8))
        return filled(left.shape, [str(m) + str(n) for m, n in zip(left.flat, right.flat, strict=True)])


@register("StringSplit")
class StringSplit(Layer):
    """Parts of each string between delimiters (whitespace by default), and their number.

    The core has no strings.

    Shapes:
        input (*S)  ->  (*S, most), (*S)
    """

    delimiter: str = ""
    maxsplit: int | None = None

    def infer(self, input: TensorSpec) -> Any:
        return TensorSpec((*input.shape, None), STRING), TensorSpec(input.shape, INT64)

    def forward(self, input: Array) -> Any:
        most = -1 if self.maxsplit is None else self.maxsplit
        parts = [str(each).split(self.delimiter or None, most) for each in texts(input, "input").flat]
        width = max(map(len, parts), default=0)
        check_size((*input.shape, width), STRING)
        padded = [item for each in parts for item in (*each, *[""] * (width - len(each)))]
        return filled((*input.shape, width), padded), np.array([len(each) for each in parts], INT64).reshape(
            input.shape
        )


@register("StringNormalizer")
class StringNormalizer(Layer):
    """Strings in one case, without stop words; one empty string if none is left.

    The core has no strings.

    Shapes:
        input (C,) or (1, C)
    """

    case_change_action: str = "NONE"
    is_case_sensitive: bool = False
    locale: str = ""
    stopwords: tuple[str, ...] = ()

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.rank not in (1, 2) or (input.rank == 2 and input.shape[0] not in (1, None)):
            raise ShapeError("no list of texts", found=format_shape(input.shape), expected="[C] or [1, C]")
        return TensorSpec((*input.shape[:-1], None), STRING)

    def forward(self, input: Array) -> Array:
        words = [str(each) for each in texts(input, "input").flat]
        if self.is_case_sensitive:
            kept = [each for each in words if each not in self.stopwords]
        else:
            stopped = {each.lower() for each in self.stopwords}
            kept = [each for each in words if each.lower() not in stopped]
        change = {"LOWER": str.lower, "UPPER": str.upper}.get(self.case_change_action)
        kept = [change(each) for each in kept] if change else kept
        kept = kept or [""]
        return filled((*input.shape[:-1], len(kept)), kept)


@register("TfIdfVectorizer")
class TfIdfVectorizer(Layer):
    """Counts of the n-grams of a pool in each row, optionally weighted.

    The core has no strings.

    Parameters:
        pool: the n-grams in order of their length.
        ngram_counts: start of each length in the pool.
        ngram_indexes: output index of each n-gram.
        max_skip_count: maximum number of items skipped between two items of an n-gram.
    """

    loops = True

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in ("TF", "IDF", "TFIDF"):
            raise ParameterError("no such mode", found=self.mode, expected="TF, IDF or TFIDF")
        limit = len(self.pool_int64s or self.pool_strings)
        if any(not 0 <= each <= limit for each in self.ngram_counts) or min(self.ngram_indexes, default=0) < 0:
            raise ParameterError("ngram_counts or ngram_indexes do not fit the pool", found=limit)

    @property
    def _size(self) -> int:
        return max(self.ngram_indexes, default=-1) + 1

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec((*input.shape[:-1], self._size), _FLOAT32)

    def forward(self, input: Array) -> Array:
        rows = input.reshape(-1, input.shape[-1]) if input.ndim else input.reshape(1, 1)
        check_size((len(rows), self._size), _FLOAT32)
        grams = self._grams()
        found = np.zeros((len(rows), self._size), np.float32)
        for row, items in enumerate(rows.tolist()):
            self._count(found[row], items, grams)
        if self.mode != "TF":
            scale = np.ones(self._size, np.float32)
            for place, weight in zip(self.ngram_indexes, self.weights, strict=False):
                scale[place] = weight
            found = ((found > 0) if self.mode == "IDF" else found) * scale
        return found.reshape(*input.shape[:-1], self._size).astype(np.float32)

    def _count(self, found: Array, items: list[Any], grams: dict[tuple[Any, ...], int]) -> None:
        longest = min(self.max_gram_length, len(self.ngram_counts), len(items))
        for length in cancellable(range(max(self.min_gram_length, 1), longest + 1)):
            # Items further apart than the row's length never occur.
            widest = (len(items) - 1) // (length - 1) if length > 1 else 1
            for skip in cancellable(range(1, min(self.max_skip_count + 1 if length > 1 else 1, widest) + 1)):
                for start in range(len(items) - (length - 1) * skip):
                    place = grams.get(tuple(items[start : start + (length - 1) * skip + 1 : skip]))
                    if place is not None:
                        found[place] += 1

    def _grams(self) -> dict[tuple[Any, ...], int]:
        pool: tuple[Any, ...] = self.pool_int64s or self.pool_strings
        ends = (*self.ngram_counts[1:], len(pool))
        grams, number = {}, 0
        for length, (begin, end) in enumerate(zip(self.ngram_counts, ends, strict=True), start=1):
            for start in range(begin, end - length + 1, length):
                if number < len(self.ngram_indexes):
                    grams[tuple(pool[start : start + length])] = self.ngram_indexes[number]
                number += 1
        return grams


@register("LabelEncoder")
class LabelEncoder(Layer):
    """Elements mapped by a table, with a default for missing keys, or none.

    The core has no strings.
    """

    keys: Any
    values: Any
    default: Any
    dtype: int = 0
    must_have_key: bool = False

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, self._dtype)

    def forward(self, input: Array) -> Array:
        table = dict(zip(self.keys, self.values, strict=False))
        if self.must_have_key and (unknown := sum(each not in table for each in input.reshape(-1).tolist())):
            raise ShapeError("an element is of no category", found=unknown, expected="none such")
        items = [table.get(each, self.default) for each in input.reshape(-1).tolist()]
        if self._dtype == STRING:
            return filled(input.shape, items)
        return np.array(items, self._dtype).reshape(input.shape)

    @property
    def _dtype(self) -> DType:
        first = self.default
        if self.dtype:
            return onnx_dtype(self.dtype)
        return STRING if isinstance(first, str) else _FLOAT32 if isinstance(first, float) else INT64
