"""Base of kernels that process independent lines; a chunk has as many lines as are worth scheduling."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from engine.compiler.kernels.kernel import Kernel
from engine.ir.dims import largest, smallest


@dataclass(frozen=True, kw_only=True)
class Lines(Kernel):
    """Kernel of independent lines."""

    @property
    @abstractmethod
    def lines(self) -> int:
        """Return the number of lines."""

    @property
    @abstractmethod
    def line_bytes(self) -> int:
        """Return the bytes read and written for one line."""

    @cached_property
    def block(self) -> int:
        """Return the number of lines in a chunk."""
        return largest(1, smallest(self.lines, self.host.chunk_bytes // self.line_bytes))

    @property
    def chunks(self) -> int:
        return -(-self.lines // self.block)
