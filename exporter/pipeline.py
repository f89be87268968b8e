"""The whole export: trace, convert, load, compare with PyTorch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import engine
from exporter.alternatives import Alternatives, load, unfit, with_alternative
from exporter.errors import ExportError, SourceError
from exporter.inputs import InputSpec, check_second
from exporter.naming import keep_names
from exporter.recording import record
from exporter.tensors import answer, flatten
from exporter.tracing.script import trace
from exporter.verification import Verdict, cases, verify

Progress = Callable[[str], AbstractContextManager[None]]


def _silent(step: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Pair whose results agree with PyTorch's.

    Args:
        folder: folder of model.pnnx.param and model.pnnx.bin.
        graph: the pair, loaded.
        tried: the shapes at which the results agree.
        remarks: notes for the user: the tracer's warnings, shapes that could not be tried.
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
    """Convert a PyTorch module to a PNNX pair and check that it gives the same results.

    Args:
        model: a torch.nn.Module; put into evaluation mode, its half precision turned into single.
        inputs: shapes and dtypes to trace with, one an input.
        folder: target of the pair, which is left there for inspection if the results differ.
        second: other shapes; dimensions that differ become dynamic.
        opt_level: level of simplification, 0 to 2.
        module_operators: classes (``package.module.Class``) kept as one operator each, see docs/custom-operators.md.
        rtol: allowed error as a share of an output's largest magnitude; by default 1e-4 for float32.
        reference: an .npz file to write with PyTorch's values, see record(); also when the results differ.
        progress: called with the name of each step, returns a context for it.

    Raises:
        SourceError: the model does not take the inputs.
        TracingError, ConversionError: it cannot be traced or converted.
        UnsupportedOperatorError: the engine lacks operators of the graph.
        DivergenceError: the results differ, or the pair cannot be run.

    Every error except SourceError names a tested alternative that works, or the alternatives that do not.
    """
    if second:
        check_second(inputs, second)
    if opt_level not in (0, 1, 2):
        raise ExportError("unknown level of simplification", found=opt_level, expected="0, 1 or 2")
    model, inputs, second, remarks = _in_single_precision(model.eval(), inputs, second)
    with progress("finding the integers that the model takes"):
        trials = cases(model, inputs, second)
    with tempfile.TemporaryDirectory() as scratch:
        alternatives = Alternatives(model, inputs, second, trials, Path(scratch), opt_level, module_operators, rtol)
        tensors = trials[0].tensors()
        result = answer(model, tensors)
        list(flatten(result))
        try:
            with progress("tracing"):
                remarks += trace(model, tensors, result, alternatives.script, is_dynamic=bool(second))
            with progress("converting"):
                alternatives.convert(folder, opt_level, second)
                keep_names(model, folder)
            graph = load(folder)
            if reference is not None:
                with open(reference, "wb") as file:
                    np.savez(file, allow_pickle=False, **record(model, tensors, graph))
            with progress("comparing with PyTorch"):
                verdicts = [*verify(model, graph, trials, rtol)]
        except SourceError:
            raise
        except engine.EngineError as error:
            with progress("trying other ways to export it"):
                raise with_alternative(unfit(error), alternatives) from error
    agreed = tuple(dict.fromkeys(each.case.shapes for each in verdicts if each.has_agreed))
    noted = {each.case.shapes: each.remark for each in reversed(verdicts) if each.remark is not None}
    remarks = (*remarks, *_refused(verdicts, agreed), *reversed(noted.values()), *map(str, graph.warnings))
    return Exported(folder=folder, graph=graph, tried=agreed, remarks=remarks)


def _refused(verdicts: Sequence[Verdict], agreed: Sequence[str]) -> Iterator[str]:
    """Return a remark on shapes at which nothing was compared, because PyTorch refuses them."""
    refusals = {each.case.shapes: each.refusal for each in verdicts if each.case.shapes not in agreed}
    if refusals:
        yield f"not tried at {' and '.join(refusals)}: {next(iter(refusals.values()))}"


def _in_single_precision(
    model: Any, inputs: Sequence[InputSpec], second: Sequence[InputSpec]
) -> tuple[Any, tuple[InputSpec, ...], tuple[InputSpec, ...], tuple[str, ...]]:
    """Return model and inputs in single precision: the converter mixes it with half precision and fails."""
    values = [*model.parameters(), *model.buffers()]
    if not any(value.dtype in (torch.float16, torch.bfloat16) for value in values):
        return model, tuple(inputs), tuple(second), ()
    first, other = ([spec.without_half for spec in specs] for specs in (inputs, second))
    return model.float(), tuple(first), tuple(other), ("half precision was turned into single precision",)
