"""PyTorch -> PNNX: trace a module, convert it, compare the result with PyTorch, install it in a model store.

    import exporter
    exported = exporter.export(model.eval(), exporter.parse_inputs(["1,3,224,224"]), Path("out"))
    reference = exporter.record(model, tensors, exported.graph)      # values for `pnnx-serve compare`

Needs torch and pnnx, the ``export`` extra; libraries are imported when a name that needs them is first accessed. The
server does not import this package. Every failure is an ``exporter.ExportError``, or another ``engine.EngineError`` if
the engine cannot run the export.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exporter.errors import ConversionError, DivergenceError, ExportError, SourceError, TracingError
from exporter.inputs import InputSpec, parse_inputs
from exporter.placement import install, model_name, place

if TYPE_CHECKING:
    from exporter.pipeline import Exported, export
    from exporter.recording import record
    from exporter.sentence_models import append_dense
    from exporter.source import load_source, load_weights
    from exporter.transformer import export_transformer

__all__ = [
    "ConversionError",
    "DivergenceError",
    "ExportError",
    "Exported",
    "InputSpec",
    "SourceError",
    "TracingError",
    "append_dense",
    "export",
    "export_transformer",
    "install",
    "load_source",
    "load_weights",
    "model_name",
    "parse_inputs",
    "place",
    "record",
]

_LATE = {
    "append_dense": "sentence_models", "export_transformer": "transformer", "export": "pipeline",
    "Exported": "pipeline", "record": "recording", "load_source": "source", "load_weights": "source",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'exporter' has no attribute '{name}'")
    return getattr(import_module(f"exporter.{_LATE[name]}"), name)
