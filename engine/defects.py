"""Defects of the compiler: exceptions that no rule, kernel or check foresaw while a graph was compiled.

The reference may answer instead of what could not be compiled, but a defect is never hidden: it is logged at ERROR with
its operator, counted for the metrics, and listed in ``GET /models/{name}``. With ``backend="compiled"``, and outside a
session, it is an error.
"""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from engine.errors import CompileMemoryError, CompilerDefectError, EngineError

if TYPE_CHECKING:
    from engine.graph import RuntimeGraph

# Different defects that are listed for a model; all are counted.
_MAX_LISTED: Final = 16
_LONGEST: Final = 500

_log = logging.getLogger("pnnx_serve.engine")


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect, with the name and type of the operator it was met at; empty where it concerns the whole graph."""

    operator: str
    type: str
    error: str


class Defects:
    """Log of the defects met while one session compiles; many threads may write to it.

    Args:
        are_errors: whether a defect ends the compilation, because the reference may not answer.

    Attributes:
        count: defects met, repetitions included.
    """

    def __init__(self, *, are_errors: bool = False) -> None:
        self.are_errors = are_errors
        self.count = 0
        self._listed: dict[Defect, None] = {}
        self._lock = threading.Lock()

    def add(self, operator: str, kind: str, error: Exception) -> None:
        """Count a defect; log it the first time it is met.

        Args:
            kind: the operator's type.
        """
        defect = Defect(operator, kind, f"{type(error).__name__}: {error}"[:_LONGEST])
        with self._lock:
            self.count += 1
            is_known = defect in self._listed
            if not is_known and len(self._listed) < _MAX_LISTED:
                self._listed[defect] = None
        if not is_known:
            where = f"operator '{operator}' ({kind})" if operator else "the graph"
            _log.error("a defect of the compiler at %s: %s", where, defect.error, exc_info=error)

    def describe(self) -> list[dict[str, Any]]:
        """Return the different defects as plain data, the first ones met."""
        with self._lock:
            return [asdict(each) for each in self._listed]

    def collecting(self, graph: RuntimeGraph) -> _Collecting:
        """Collect the defects of what this thread compiles of a graph in the block.

        Raises:
            CompilerDefectError: in place of any exception that is not an EngineError, which is a defect.
            CompileMemoryError: in place of a MemoryError, which is not a defect.
        """
        return _Collecting(self, graph)


class _Collecting:
    """Context of ``Defects.collecting``; a generator would take longer, in the first run of every size."""

    __slots__ = ("_defects", "_graph", "_token")

    def __init__(self, defects: Defects, graph: RuntimeGraph) -> None:
        self._defects, self._graph = defects, graph

    def __enter__(self) -> None:
        self._token = _current.set((self._defects, self._graph))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _current.reset(self._token)
        if error is None or isinstance(error, EngineError) or not isinstance(error, Exception):
            return
        if isinstance(error, MemoryError):
            raise lack_of_memory("", error) from error
        self._defects.add("", "", error)
        raise _as_refusal("", error) from error


_current: ContextVar[tuple[Defects, RuntimeGraph] | None] = ContextVar("defects", default=None)


def report_defect(operator: str, error: Exception, *, is_compiled: bool = False) -> None:
    """Report that compiling an operator failed in a way that is not a typed refusal.

    Args:
        operator: its name; empty where it concerns the whole graph.
        is_compiled: whether it becomes machine code in another way.

    Raises:
        CompilerDefectError: the reference layer may not run the operator instead, or no session compiles.
        CompileMemoryError: there was not enough memory, which is not a defect; a later attempt may succeed.
    """
    if isinstance(error, MemoryError):
        raise lack_of_memory(operator, error) from error
    current = _current.get()
    if current is None:  # no session compiles
        raise _as_refusal(operator, error) from error
    defects, operators = current[0], current[1].source.operators
    defects.add(operator, next((each.type for each in operators if each.name == operator), ""), error)
    if defects.are_errors and not is_compiled:
        raise _as_refusal(operator, error) from error


def lack_of_memory(where: str, error: MemoryError) -> CompileMemoryError:
    """Return the error for a lack of memory during compilation."""
    return CompileMemoryError(
        "there is not enough memory to compile", where=where, found=f"{error}"[:_LONGEST] or "none"
    )


def _as_refusal(where: str, error: Exception) -> CompilerDefectError:
    found = f"{type(error).__name__}: {error}"[:_LONGEST]
    return CompilerDefectError("the compiler failed", where=where, found=found)
