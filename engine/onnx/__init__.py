"""ONNX files as graphs of ordinary operators: PNNX's layers where they are equivalent, else ONNX's own.

graph = read("model.onnx")     # a pnnx.Graph, like any other

reading/       a file as messages, its tensors as views of it
translation/   node by node, each by its translator from the registry; the builder adds the new operators, infers their
               shapes and folds constants
translators/   one module or package a family
"""

from __future__ import annotations

import os
from typing import Final

from engine.errors import EngineError, ModelFormatError, from_foreign
from engine.memory.files import Path, file_name
from engine.pnnx.graph import Graph

__all__ = ["SUFFIX", "is_onnx", "read", "with_core_operators"]

SUFFIX: Final = ".onnx"


def is_onnx(path: Path) -> bool:
    """Return whether a file is an ONNX model, by its name."""
    return os.fsdecode(path).endswith(SUFFIX)


def read(path: Path) -> Graph:
    """Read a model and translate it.

    Raises:
        ModelFormatError: not a model, damaged, or the package ``onnx`` is missing.
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


def with_core_operators(source: Graph) -> Graph:
    """Return a pair's graph with operators of ONNX that have no layer translated; the same object if there is none."""
    from engine.layers import registry

    if all(op.type in registry or not op.type.isidentifier() for op in source.operators):
        return source
    from engine.onnx.translation import pairs

    return pairs.with_core_operators(source)
