"""ONNX files as graphs of ordinary operators: layers of PNNX where the meaning is the same, ONNX's own elsewhere.

graph = read("model.onnx")     # a pnnx.Graph, like any other

reading/       a file as messages, its tensors as views of it
translation/   node after node: each by the translator that the registry finds; what they make goes through the
               builder, which follows shapes and constants
translators/   one module or room a family
"""

from __future__ import annotations

import os
from typing import Final

from engine.errors import EngineError, ModelFormatError, from_foreign
from engine.memory.files import Path, file_name
from engine.pnnx.graph import Graph

__all__ = ["SUFFIX", "is_onnx", "read"]

SUFFIX: Final = ".onnx"


def is_onnx(path: Path) -> bool:
    """Whether a file is taken for an ONNX model: by its name."""
    return os.fsdecode(path).endswith(SUFFIX)


def read(path: Path) -> Graph:
    """Read a model and translate it.

    Raises:
        ModelFormatError: no model, a damaged one, or the package ``onnx`` is missing.
        UnsupportedOperatorError: every operator that has no translation, with its name and operator set.
        EngineError: an operator contradicts itself or its operands; names the operator.
    """
    from engine.onnx.reading.source import read_model
    from engine.onnx.translation.translate import translate

    model = read_model(path)
    try:
        return translate(model)
    except EngineError as error:
        raise error.at(file_name(path)) from error.__cause__
    except RecursionError:
        raise ModelFormatError("the model is nested too deep", where=file_name(path)) from None
    except Exception as exc:
        raise from_foreign(exc, ModelFormatError, "the file cannot be read", file_name(path)) from exc
