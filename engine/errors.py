"""Everything the engine can refuse, in one tree.

EngineError
├─ ModelFormatError          the file pair is not what the PNNX format allows
│  ├─ ParamSyntaxError       in the text file (place: file and line)
│  └─ WeightsError           in the archive (place: file and member)
├─ BundleError               what was compiled ahead of time is damaged, altered, or of another machine or engine
├─ GraphError                cycle, dangling or doubly made operand, wrong state
├─ ExpressionError           a pnnx.Expression text (place: column)
├─ UnsupportedOperatorError  every unknown operator type of a graph at once, with the nearest names
├─ ParameterError            a static argument or attribute does not fit its operator (also a ValueError)
├─ ShapeError                operands do not fit each other (also a ValueError)
├─ InputError                a caller's tensors do not fit the graph (also a ValueError)
├─ ExecutionError            an operator failed while running
├─ RunCancelledError         the caller cancelled the run between two operators, or what compiles for it
└─ CompileError              an operator cannot be lowered; the caller may fall back to the reference
   ├─ CompileMemoryError     there was not enough memory to compile or to run machine code; tried again later
   └─ CompilerDefectError    the compiler failed in a way that it does not foresee

Every error says where, what was found and what was expected. Places are file *names*, operators and
members, never a path of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

_NOTHING = object()
_LONGEST = 4000
_FOREIGN = 500


class EngineError(Exception):
    """Base of all errors raised by the engine.

    Args:
        problem: what is wrong, as a sentence without a full stop.
        where: operator, file and line, member or input name.
        found: the offending value, printed with str().
        expected: what would have been right, printed with str().

    Attributes:
        remark: what else speaks for a cause, at the end of the text.
    """

    remark = ""

    def __init__(self, problem: str, *, where: str = "", found: object = _NOTHING, expected: object = _NOTHING) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self._found = found
        self._expected = expected

    @classmethod
    def like(cls, other: EngineError) -> Self:
        """An error of this class, with the message of another."""
        return cls(other.problem, where=other.where, found=other._found, expected=other._expected)

    @property
    def found(self) -> str | None:
        """The offending value as text, or None when the problem names no value."""
        return None if self._found is _NOTHING else _text(self._found)

    @property
    def expected(self) -> str | None:
        """What would have been right as text, or None when the problem says it all."""
        return None if self._expected is _NOTHING else _text(self._expected)

    def at(self, where: str) -> Self:
        """This error, placed: an operator's layer does not know the operator's name, its caller does."""
        self.where = f"{where}: {self.where}" if self.where else where
        return self

    def __str__(self) -> str:
        text = f"{_text(self.where)}: {_text(self.problem)}" if self.where else _text(self.problem)
        if self.found is not None:
            text += f": found {self.found}"
        if self.expected is not None:
            text += f", expected {self.expected}"
        return f"{text}; {_text(self.remark)}" if self.remark else text


def _text(value: object) -> str:
    """Return a value as text, cut where no reader would follow; a file may hold names and values of any length."""
    try:
        text = str(value)
    except ValueError:  # a whole number of more digits than Python is willing to write
        return "a very long number"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


@contextmanager
def named(kind: type[EngineError], problem: str, where: str) -> Iterator[None]:
    """A net below the checks: what is no EngineError comes out as one, so that no caller meets anything else.

    Args:
        kind: what foreign errors become; the original is their cause.
        problem, where: as for EngineError.
    """
    try:
        yield
    except EngineError:
        raise
    except Exception as exc:
        raise from_foreign(exc, kind, problem, where) from exc


def from_foreign(exc: Exception, kind: type[EngineError], problem: str, where: str) -> EngineError:
    """What an exception that nobody foresaw comes out as."""
    what = "not enough memory" if isinstance(exc, MemoryError) else type(exc).__name__
    return kind(problem, where=where, found=f"{what}: {exc}"[:_FOREIGN])


class ModelFormatError(EngineError):
    """The .param or .bin file is not what the PNNX format allows."""


class ParamSyntaxError(ModelFormatError):
    """A line of the text file is malformed or contradicts another."""


class WeightsError(ModelFormatError):
    """An archive member is missing, of the wrong size, damaged or of an unknown dtype."""


class BundleError(EngineError):
    """A bundle is damaged or altered, somebody else may write to it, or it is for another machine or engine."""


class GraphError(EngineError):
    """The operators do not form a valid graph, or the graph is not in the state the call needs."""


class ExpressionError(EngineError):
    """A pnnx.Expression text cannot be parsed, or its value cannot be computed."""


class UnsupportedOperatorError(EngineError):
    """The graph holds operator types no layer is registered for."""


class ParameterError(EngineError, ValueError):
    """A parameter or attribute is missing, unknown, of the wrong kind or out of range."""


class ShapeError(EngineError, ValueError):
    """The shapes or dtypes of an operator's operands do not fit each other."""


class InputError(EngineError, ValueError):
    """The tensors given to run() do not fit the graph's inputs."""


class ExecutionError(EngineError):
    """An operator failed while running, for a reason its layer did not foresee."""


class RunCancelledError(EngineError):
    """The caller cancelled the run, or the compiling for it; it stopped before the operator or stage named."""


class CompileError(EngineError):
    """An operator cannot be lowered to machine code; the reference layer can still run it."""


class CompileMemoryError(CompileError):
    """There is not enough memory to compile, or for machine code to run in; this passes, so it is tried again."""


class CompilerDefectError(CompileError):
    """The compiler failed in a way that it does not foresee; logged and counted, see ``engine.defects``."""


_LIMIT = 60


def quoted(text: str) -> str:
    """``text`` in quotes with unprintable characters escaped, cut in the middle when it is long."""
    if len(text) <= _LIMIT:
        return repr(text)
    return f"{text[: _LIMIT // 2]!r}...{text[-_LIMIT // 4 :]!r} ({len(text):,} characters)"
