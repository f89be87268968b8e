"""The tree of all errors that the engine raises.

EngineError
├─ ModelFormatError          the file pair is not what the PNNX format allows
│  ├─ ParamSyntaxError       in the text file (place: file and line)
│  └─ WeightsError           in the archive (place: file and member)
├─ BundleError               a bundle is damaged, altered, or made for another machine or engine
├─ GraphError                cycle, operand without or with two producers, wrong state
├─ ExpressionError           a pnnx.Expression text (place: column)
├─ UnsupportedOperatorError  every unknown operator type of a graph at once, with the nearest names
├─ ParameterError            a static argument or attribute does not fit its operator (also a ValueError)
├─ ShapeError                operands do not fit each other (also a ValueError)
├─ InputError                a caller's tensors do not fit the graph (also a ValueError)
├─ ExecutionError            an operator failed while running
├─ RunCancelledError         the caller cancelled the run between two operators, or its compilation
└─ CompileError              an operator cannot be lowered; the caller may fall back to the reference
   ├─ CompileMemoryError     there was not enough memory to compile or to run machine code; tried again later
   └─ CompilerDefectError    an exception in the compiler that is not a typed refusal

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
        remark: a hint at the cause, appended to the text.
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
        """Return an error of this class with the message of another."""
        return cls(other.problem, where=other.where, found=other._found, expected=other._expected)

    @property
    def found(self) -> str | None:
        """The offending value as text; None when the problem names no value."""
        return None if self._found is _NOTHING else _text(self._found)

    @property
    def expected(self) -> str | None:
        """The expected value as text; None when the problem says it all."""
        return None if self._expected is _NOTHING else _text(self._expected)

    def at(self, where: str) -> Self:
        """Return this error with a location prefixed: a layer does not know its operator's name, its caller does."""
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
    """Return a value as text, cut to a readable length; a file may hold names and values of any length."""
    try:
        text = str(value)
    except ValueError:  # a whole number of more digits than Python is willing to write
        return "a very long number"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


@contextmanager
def named(kind: type[EngineError], problem: str, where: str) -> Iterator[None]:
    """Turn every exception of the block into an EngineError, so that callers meet nothing else.

    Args:
        kind: class of the error for foreign exceptions; the original becomes its cause.
        problem, where: as for EngineError.
    """
    try:
        yield
    except EngineError:
        raise
    except Exception as exc:
        raise from_foreign(exc, kind, problem, where) from exc


def from_foreign(exc: Exception, kind: type[EngineError], problem: str, where: str) -> EngineError:
    """Return the error for an exception that no check anticipated."""
    what = "not enough memory" if isinstance(exc, MemoryError) else type(exc).__name__
    return kind(problem, where=where, found=f"{what}: {exc}"[:_FOREIGN])


class ModelFormatError(EngineError):
    """The .param or .bin file is not what the PNNX format allows."""


class ParamSyntaxError(ModelFormatError):
    """A line of the text file is malformed or contradicts another."""


class WeightsError(ModelFormatError):
    """An archive member is missing, of the wrong size, damaged or of an unknown dtype."""


class BundleError(EngineError):
    """A bundle is damaged or altered, writable for other users, or made for another machine or engine."""


class GraphError(EngineError):
    """The operators do not form a valid graph, or the graph is not in the state the call needs."""


class ExpressionError(EngineError):
    """A pnnx.Expression text cannot be parsed, or its value cannot be computed."""


class UnsupportedOperatorError(EngineError):
    """The graph has operator types without a registered layer."""


class ParameterError(EngineError, ValueError):
    """A parameter or attribute is missing, unknown, of the wrong kind or out of range."""


class ShapeError(EngineError, ValueError):
    """The shapes or dtypes of an operator's operands do not fit each other."""


class InputError(EngineError, ValueError):
    """The tensors given to run() do not fit the graph's inputs."""


class ExecutionError(EngineError):
    """An operator failed while running, for a reason that its layer does not check."""


class RunCancelledError(EngineError):
    """The caller cancelled the run, or its compilation, before the operator or stage named."""


class CompileError(EngineError):
    """An operator cannot be lowered to machine code; the reference layer can still run it."""


class CompileMemoryError(CompileError):
    """There is not enough memory to compile or to run machine code; retried later, as the lack may pass."""


class CompilerDefectError(CompileError):
    """The compiler raised an exception that is not a typed refusal; logged and counted, see ``engine.defects``."""


_LIMIT = 60


def quoted(text: str) -> str:
    """Return ``text`` in quotes, with unprintable characters escaped, and cut in the middle when it is long."""
    if len(text) <= _LIMIT:
        return repr(text)
    return f"{text[: _LIMIT // 2]!r}...{text[-_LIMIT // 4 :]!r} ({len(text):,} characters)"
