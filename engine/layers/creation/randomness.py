"""Random tensors. Every process draws from a generator of its own, seeded by the operating system; threads share it."""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from engine.errors import ParameterError
from engine.layers.creation.creation import FLOAT32, Creation, LikeInput
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import PLACEMENT, overload
from engine.layers.definition.registry import register
from engine.layers.operands.axes import sizes
from engine.layers.operands.bounds import extremes
from engine.layers.operands.precision import INT64
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec, dtype_name

_generators: Final[dict[int, np.random.Generator]] = {}


def generator() -> np.random.Generator:
    """Return this process's generator, which numpy locks for every draw; a forked process gets its own."""
    found = _generators.get(os.getpid())
    return found if found is not None else _generators.setdefault(os.getpid(), np.random.default_rng())


@register("torch.randn", ignored=PLACEMENT)
class RandN(Creation):
    """Standard normal numbers."""

    def forward(self) -> Array:
        return cast(np.asarray(generator().standard_normal(sizes(self.size))), self.dtype or FLOAT32)


class Rand(Creation):
    """Numbers evenly from 0 to 1, 1 excluded."""

    def forward(self) -> Array:
        return _uniform(sizes(self.size), self.dtype or FLOAT32)


def _uniform(shape: tuple[int, ...], dtype: DType) -> Array:
    # Drawn in float32: a float64 just below 1 would be rounded to 1.
    draw = np.float64 if dtype == np.float64 else np.float32
    return cast(np.asarray(generator().random(shape, draw)), dtype)


class RandInt(Creation):
    """Integers evenly from low to high, high excluded."""

    high: int
    low: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(self.low, self.high, self.dtype or INT64)

    def infer(self) -> TensorSpec:
        return TensorSpec(self.size, self.dtype or INT64)

    def forward(self) -> Array:
        return cast(np.asarray(generator().integers(self.low, self.high, sizes(self.size))), self.dtype or INT64)


def check_interval(low: int, high: int, dtype: DType) -> None:
    """Refuse bounds with no integer between them, or outside the dtype.

    Raises:
        ParameterError: low is not below high, or one of them is out of range.
    """
    if low >= high:
        raise ParameterError("the interval is empty", found=f"{low} and {high}", expected="low below high")
    lowest, largest = _reach(dtype)
    if low < lowest or high - 1 > largest:
        found = f"{low} and {high}"
        raise ParameterError("bounds are out of range", found=found, expected=f"numbers of {dtype_name(dtype)}")


def _reach(dtype: DType) -> tuple[int, int]:
    return extremes(dtype if dtype.kind in "biu" else INT64)


class RandPerm(Layer):
    """The numbers below n in any order."""

    n: int
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ParameterError("n must not be negative", found=self.n)

    def infer(self) -> TensorSpec:
        return TensorSpec((self.n,), self.dtype or INT64)

    def forward(self) -> Array:
        return cast(generator().permutation(self.n), self.dtype or INT64)


overload(
    "aten::rand", (Rand, "size dtype layout device pin_memory"), (Rand, "size generator dtype layout device pin_memory")
)
overload(
    "aten::randint",
    (RandInt, "high size dtype layout device pin_memory"),
    (RandInt, "low high size dtype layout device pin_memory"),
)
overload("aten::randperm", (RandPerm, "n dtype layout device pin_memory"))


@register("torch.randn_like", ignored=PLACEMENT)
class RandNLike(LikeInput):
    """Standard normal numbers, in the shape of input."""

    def forward(self, input: Array) -> Array:
        return RandN(size=input.shape, dtype=self.dtype or input.dtype).forward()


class RandLike(LikeInput):
    """Numbers evenly from 0 to 1, in the shape of input."""

    def forward(self, input: Array) -> Array:
        return _uniform(input.shape, self.dtype or input.dtype)


class RandIntLike(LikeInput):
    """Integers evenly from low to high, high excluded, in the shape and dtype of input."""

    high: int
    low: int = 0

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        check_interval(self.low, self.high, self.dtype or input.dtype)
        return super().infer(input)

    def forward(self, input: Array) -> Array:
        return RandInt(size=input.shape, low=self.low, high=self.high, dtype=self.dtype or input.dtype).forward()


overload("aten::rand_like", (RandLike, "input dtype layout device pin_memory memory_format"))
overload(
    "aten::randint_like",
    (RandIntLike, "input high dtype layout device pin_memory memory_format"),
    (RandIntLike, "input low high dtype layout device pin_memory memory_format"),
)
