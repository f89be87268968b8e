"""What can go wrong between a PyTorch module and a PNNX pair.

ExportError
├─ SourceError       the file, the name in it, or what it makes is no model; the inputs do not fit it
├─ TracingError      PyTorch cannot trace the model
├─ ConversionError   the converter wrote no pair, or half of one
└─ DivergenceError   the pair gives other answers than PyTorch
"""

from __future__ import annotations

import engine


class ExportError(engine.EngineError):
    """Base of all errors of the exporter."""


class SourceError(ExportError):
    """There is no model where one was said to be, or it does not take the inputs."""


class TracingError(ExportError):
    """PyTorch cannot trace the model."""


class ConversionError(ExportError):
    """The converter wrote no pair, or half of one."""


class DivergenceError(ExportError):
    """The converted pair gives other answers than PyTorch."""


def last_line(text: str) -> str:
    """The last line that says something: of a message of many lines, the one that names the problem."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def describe(exc: BaseException) -> str:
    """An exception in one line: its kind, and the last line of what it says."""
    return f"{type(exc).__name__}: {last_line(str(exc))}" if str(exc).strip() else type(exc).__name__
