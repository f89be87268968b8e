"""What kernels share that do the same for every line of something: a chunk has as many lines as are worth one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from engine.compiler.kernels.kernel import Kernel
from engine.ir.dims import largest, smallest


@dataclass(frozen=True, kw_only=True)
class Lines(Kernel):
    """A kernel of lines that do not depend on one another."""

    @property
    @abstractmethod
    def lines(self) -> int:
        """How many there are."""

    @property
    @abstractmethod
    def line_bytes(self) -> int:
        """What one of them moves."""

    @cached_property
    def block(self) -> int:
        """Lines of a chunk."""
        return largest(1, smallest(self.lines, self.host.chunk_bytes // self.line_bytes))

    @property
    def chunks(self) -> int:
        return -(-self.lines // self.block)
