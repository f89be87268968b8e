"""Errors between a PyTorch module and a PNNX pair.

ExportError
├─ SourceError       the source is not a model, or the inputs do not fit it
├─ TracingError      PyTorch cannot trace the model
├─ ConversionError   the converter wrote no pair, or half of one
└─ DivergenceError   the results of the pair differ from PyTorch's
"""

from __future__ import annotations

import engine


class ExportError(engine.EngineError):
    """Base of all errors of the exporter."""


class SourceError(ExportError):
    """The named source is not a model, or the model does not take the inputs."""


class TracingError(ExportError):
    """PyTorch cannot trace the model."""


class ConversionError(ExportError):
    """The converter wrote no pair, or half of one."""


class DivergenceError(ExportError):
    """The results of the converted pair differ from PyTorch's."""


def last_line(text: str) -> str:
    """Return the last line that is not empty: in a message of many lines, it names the problem."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def describe(exc: BaseException) -> str:
    """Return an exception in one line: its class, and the last line of its message."""
    return f"{type(exc).__name__}: {last_line(str(exc))}" if str(exc).strip() else type(exc).__name__
