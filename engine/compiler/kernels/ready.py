"""A kernel of which nothing is left to be found out: its code, and how that is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module
from engine.compiler.kernels.kernel import Kernel


@dataclass(frozen=True, kw_only=True)
class Ready(Kernel):
    """What another kernel is once there is code for it.

    Args:
        function: its name in the code.
        numbers: what it is given after its pointers.
        reported: what profiles call it.
        pieces, operations: its chunks and flops.
    """

    function: str
    numbers: tuple[int, ...]
    code: bytes = field(repr=False)
    reported: str
    pieces: int
    operations: int

    @property
    def told(self) -> tuple[Any, ...]:
        """It in numbers and texts, but for its code."""
        is_double = self.host.precision == "double"
        return is_double, self.function, self.numbers, self.reported, self.pieces, self.operations

    @classmethod
    def of(cls, told: tuple[Any, ...], code: bytes, host: Host) -> Ready:
        """What was told of, for kernels of float32 or float64 of a host."""
        is_double, function, numbers, reported, pieces, operations = told
        return cls(
            host=host.of_doubles if is_double else host,
            function=function,
            numbers=numbers,
            code=code,
            reported=reported,
            pieces=pieces,
            operations=operations,
        )

    @property
    def reported_kind(self) -> str:
        return self.reported

    @property
    def chunks(self) -> int:
        return self.pieces

    @property
    def flops(self) -> int:
        return self.operations

    def emit(self, module: Module) -> None:
        """It is written already.

        Raises:
            NotImplementedError: whenever it is called.
        """
        raise NotImplementedError("its code is there")
