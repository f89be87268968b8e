"""The whole way: trace, convert, load, hold against PyTorch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import engine
from app.models.folder.layout import BIN, PARAM
from exporter.conversion import ONNX, SCRIPT, convert
from exporter.errors import ConversionError, DivergenceError, ExportError
from exporter.inputs import InputSpec, check_second
from exporter.onnx_model import OnnxModel
from exporter.recording import record
from exporter.remedy import unfit, with_remedy
from exporter.tensors import answer, examples, flatten
from exporter.tracing.functions import plain_attention
from exporter.tracing.script import trace
from exporter.verification import cases, verify

Progress = Callable[[str], AbstractContextManager[None]]


def _silent(step: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A pair that gives PyTorch's answers.

    Args:
        folder: where model.pnnx.param and model.pnnx.bin are.
        graph: the pair, loaded.
        tried: the shapes at which the answers agree.
        remarks: what a person should know: the tracer's warnings, shapes that could not be tried.
    """

    folder: Path
    graph: engine.RuntimeGraph
    tried: tuple[str, ...]
    remarks: tuple[str, ...]


def export(
    model: Any,
    inputs: Sequence[InputSpec],
    folder: Path,
    *,
    second: Sequence[InputSpec] = (),
    opt_level: int = 2,
    module_operators: Sequence[str] = (),
    rtol: float | None = None,
    reference: str | os.PathLike[str] | None = None,
    progress: Progress = _silent,
) -> Exported:
    """Turn a PyTorch module into a PNNX pair and check that it gives the same answers.

    Args:
        model: a torch.nn.Module; put into evaluation mode, its half precision turned into single.
        inputs: shapes and dtypes to trace with, one an input.
        folder: where the pair goes. It is left there for a look when the answers differ.
        second: other shapes; dimensions that differ become dynamic.
        opt_level: how far the converter simplifies, 0 to 2.
        module_operators: classes (``package.module.Class``) kept as one operator each, see docs/custom-operators.md.
        rtol: allowed error as a share of an output's largest magnitude; by default 1e-4 for float32.
        reference: an .npz file to write with PyTorch's values, see record(); also when the answers differ.
        progress: a context for each step, given what is being done.

    Raises:
        SourceError: the model does not take the inputs.
        TracingError, ConversionError: it cannot be traced or converted.
        UnsupportedOperatorError: the engine lacks operators of the graph.
        DivergenceError: the answers differ; says which level of simplification helps.
    """
    if second:
        check_second(inputs, second)
    if opt_level not in (0, 1, 2):
        raise ExportError("no such level of simplification", found=opt_level, expected="0, 1 or 2")
    model, inputs, second, remarks = _in_single_precision(model.eval(), inputs, second)
    trials = cases(inputs, second)
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, ONNX if isinstance(model, OnnxModel) else SCRIPT)

        def converted(level: int, to: Path) -> None:
            convert(script, to, inputs, second, opt_level=level, module_operators=module_operators)

        def attempt(level: int) -> None:
            other = Path(scratch, f"level-{level}")
            converted(level, other)
            list(verify(model, _load(other), trials, rtol))

        def remedied(error: ExportError) -> ExportError:
            with progress("trying less simplification"):
                return with_remedy(error, range(opt_level - 1, -1, -1), attempt)

        with progress("tracing"), plain_attention():
            tensors = examples(inputs, 0)
            result = answer(model, tensors)
            list(flatten(result))
            remarks += trace(model, tensors, result, script)
        with progress("converting"):
            converted(opt_level, folder)
        try:
            graph = _load(folder)
        except (engine.ParameterError, engine.ShapeError) as error:
            raise remedied(unfit(error)) from error
        if reference is not None:
            with open(reference, "wb") as file:
                np.savez(file, allow_pickle=False, **record(model, tensors, graph))
        try:
            with progress("comparing with PyTorch"):
                verdicts = [*verify(model, graph, trials, rtol)]
        except DivergenceError as error:
            raise remedied(error) from None
    agreed = tuple(dict.fromkeys(each.case.shapes for each in verdicts if each.has_agreed))
    noted = (each.remark for each in verdicts if each.remark is not None)
    return Exported(folder=folder, graph=graph, tried=agreed, remarks=(*remarks, *noted, *map(str, graph.warnings)))


def _in_single_precision(
    model: Any, inputs: Sequence[InputSpec], second: Sequence[InputSpec]
) -> tuple[Any, tuple[InputSpec, ...], tuple[InputSpec, ...], tuple[str, ...]]:
    """The converter mixes half and single precision when it runs a half-precision model, and then gives up."""
    values = [*model.parameters(), *model.buffers()]
    if not any(value.dtype in (torch.float16, torch.bfloat16) for value in values):
        return model, tuple(inputs), tuple(second), ()
    first, other = ([spec.without_half for spec in specs] for specs in (inputs, second))
    return model.float(), tuple(first), tuple(other), ("half precision was turned into single precision",)


def _load(folder: Path) -> engine.RuntimeGraph:
    """The written pair; a converter that crashed half-way may have left half of one."""
    try:
        return engine.load(folder / PARAM, folder / BIN)
    except engine.ModelFormatError as error:
        raise ConversionError("pnnx wrote a pair that cannot be read", found=error) from error
