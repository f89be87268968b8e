"""One row of the tables: an operator as in a PNNX file, the same in PyTorch, and the inputs of both."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Draw:
    """Random operand: how it is drawn.

    Args:
        kind: normal, uniform (0 to 1), integers (0 to high), bools (half of them True), complex, ordered (ascending) or
            steps (multiples of high, int64).
        shape: of the array.
        high: the first integer that is not drawn.
    """

    kind: str
    shape: tuple[int, ...]
    high: int = 0

    def array(self, seed: str) -> Array:
        """Return the same array for the same seed."""
        rng = np.random.default_rng(zlib.crc32(seed.encode()))
        normal = rng.standard_normal(self.shape, np.float32)
        makers: dict[str, Callable[[], Array]] = {
            "normal": lambda: normal,
            "uniform": lambda: rng.random(self.shape, np.float32),
            "integers": lambda: rng.integers(0, self.high, self.shape),
            "bools": lambda: normal > 0,
            "complex": lambda: normal + 1j * rng.standard_normal(self.shape, np.float32),
            "ordered": lambda: np.sort(normal, axis=-1),
            "steps": lambda: np.arange(self.shape[0]) * self.high,
        }
        return makers[self.kind]()


def normal(*shape: int) -> Draw:
    """Return standard normal float32."""
    return Draw("normal", shape)


def uniform(*shape: int) -> Draw:
    """Return float32 from 0 to 1."""
    return Draw("uniform", shape)


def integers(high: int, *shape: int) -> Draw:
    """Return int64 from 0 to high - 1."""
    return Draw("integers", shape, high)


def bools(*shape: int) -> Draw:
    """Return bool, half of them True."""
    return Draw("bools", shape)


def waves(*shape: int) -> Draw:
    """Return complex64 with normal parts."""
    return Draw("complex", shape)


def steps(count: int, step: int) -> Draw:
    """Return int64: 0, step, 2 * step, ..."""
    return Draw("steps", (count,), step)


def ordered(*shape: int) -> Draw:
    """Return float32 in ascending order along the last axis."""
    return Draw("ordered", shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operator at one size.

    Args:
        family: the module of tests/data/layers with its recorded samples.
        type: the PNNX type.
        call: the torch module, then operands and attributes as tensors -> what PyTorch answers, a tensor or several.
        operands: drawn, or handed over as they are (numbers, lists of draws).
        attributes: the tensors stored with the operator, in the order in which ``call`` takes them.
        params: as in the file.
        note: tells cases of one type apart.
    """

    family: str
    type: str
    call: Callable[..., Any]
    operands: tuple[Any, ...]
    attributes: Mapping[str, Draw] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def name(self) -> str:
        """Return a name that is unique among the cases."""
        return f"{self.type} {self.note}".rstrip()

    @property
    def size(self) -> str:
        """Return the shapes of the drawn operands: ``1x64x56x56``."""
        shapes = [each.shape for each in _drawn(self.operands)]
        return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)

    def feed(self) -> tuple[list[Any], dict[str, Array]]:
        """Return operands and attributes as arrays."""
        operands = [_fed(each, f"{self.name} {index}") for index, each in enumerate(self.operands)]
        return operands, {key: each.array(f"{self.name} {key}") for key, each in self.attributes.items()}


def _drawn(operands: Any) -> list[Draw]:
    if isinstance(operands, Draw):
        return [operands]
    return [draw for each in operands for draw in _drawn(each)] if isinstance(operands, (tuple, list)) else []


def _fed(operand: Any, seed: str) -> Any:
    if isinstance(operand, list):
        return [_fed(each, f"{seed} {index}") for index, each in enumerate(operand)]
    return operand.array(seed) if isinstance(operand, Draw) else operand
