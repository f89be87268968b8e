"""``pnnx-serve run``: one inference, computed as the server would."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.arrays import dtype_name
from app.cli.arguments import files
from app.cli.arguments.pipelines import load_any
from app.cli.output import write_json
from app.codec.answers import dump_json
from app.codec.numpy_files import write_npz
from app.messages import printable
from app.models.model import Model
from app.models.request import InferRequest, InferResult
from app.models.servable import Servable
from app.progress import compiling, progress
from app.render.formatting import shortened, time_text
from app.settings import Settings
from app.signature import Input, Inputs
from app.tasks.task import Finding

Writer: TypeAlias = Callable[[Any], Iterator[str]]
_MOST_CHARACTERS = 60
_UNSAID = ("label", "index", "color", "mask")
_FIGURES = (("min", np.min), ("max", np.max), ("mean", np.mean))


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Load, run and report."""
    settings = files.without_limits(settings)
    found, model = load_any(args.model, settings)
    pictures = files.find_pictures(args.image)
    sounds = files.find_sounds(args.sound)
    inputs = files.read_inputs(args.input, pictures, model.signature, settings, sounds)
    if isinstance(model, Model) and _is_exported(
        model, inputs
    ):  # compile with progress shown, rather than silently within the run
        with compiling(found.name) as show:
            model.compile(progress=show)
    request = InferRequest(
        decode=lambda _: inputs,
        # Outputs for sounds of several lengths cannot be joined.
        outputs=True if isinstance(model, Model) and (args.output is not None or not sounds) else None,
        draw=args.draw is not None,
        parameters={} if args.top_k is None else {"top_k": args.top_k},
    )
    with progress(f"running {found.name}"):
        result = model.infer(request)
    if args.output is not None:
        Path(args.output).write_bytes(write_npz(result.outputs))
    if result.drawing is not None:
        Path(args.draw).write_bytes(result.drawing)
    if args.json:
        write_json(_plain(result, found.name, _backend(model)))
    else:
        sys.stdout.write(
            report(result, pictures or sounds, f"{found.name} · {_backend(model)} back end", _writer(model))
        )
    return 0


def _writer(model: Servable) -> Writer:
    """Return the function that writes a prediction of the model."""
    if model.hooks is not None and model.hooks.makes_answers:
        return _answer
    return _finding if isinstance(model, Model) else _results


def _backend(model: Servable) -> str:
    return model.session.backend if isinstance(model, Model) else model.task


def _is_exported(model: Model, inputs: Inputs) -> bool:
    """Return whether the inputs have the exported shapes, which are compiled on first use."""
    zeros = model.example_inputs() or {}

    def has_shape(given: Input, zero: NDArray[Any]) -> bool:
        return len(given) == len(zero) if isinstance(given, tuple) else getattr(given, "shape", None) == zero.shape

    return bool(zeros) and all(has_shape(given, zeros[name]) for name, given in inputs.items())


def report(result: InferResult, items: Sequence[str], about: str, write: Writer) -> str:
    """Return the report; ``items`` names the items of a batch for the predictions, of which ``write`` yields lines."""
    lines = [f"{about} · {time_text(result.timing.infer_s * 1e6)}"]
    width = max(map(len, result.outputs), default=0)
    lines += [f"{name.ljust(width)}  {statistics(array)}" for name, array in result.outputs.items()]
    lines += _predictions(result.predictions or [], items, write)
    return "\n".join([*map(printable, lines), ""])


def _plain(result: InferResult, name: str, backend: str) -> dict[str, Any]:
    outputs = {
        key: {"shape": list(array.shape), "dtype": dtype_name(array.dtype)} for key, array in result.outputs.items()
    }
    seconds = result.timing.infer_s
    return {
        "model": name,
        "backend": backend,
        "infer_s": seconds,
        "outputs": outputs,
        "predictions": result.predictions,
    }


def statistics(array: NDArray[Any]) -> str:
    """Return ``[1, 10] float32  min -4.02  max 9.87  mean 0.31`` over finite values; NaN and infinities are counted."""
    head = f"{list(array.shape)} {dtype_name(array.dtype)}"
    if array.dtype.kind == "c":
        return f"{head}  magnitudes: {_numbers(np.abs(array))}"
    return f"{head}  {_numbers(array)}"


def _numbers(array: NDArray[Any]) -> str:
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    parts = [f"{name} {float(of(finite)):.6g}" for name, of in _FIGURES if finite.size]
    parts += [f"{name} {int(count)}" for name, count in _oddities(values) if count]
    return "  ".join(parts) or "empty"


def _oddities(values: NDArray[np.float64]) -> tuple[tuple[str, int], ...]:
    return ("NaN", int(np.isnan(values).sum())), ("infinite", int(np.isinf(values).sum()))


def _predictions(findings: Sequence[Finding], items: Sequence[str], write: Writer) -> Iterator[str]:
    for number, finding in enumerate(findings):
        yield ""
        yield f"{items[number]}:" if number < len(items) else f"item {number + 1}:"
        yield from write(finding)


def _answer(answer: Any) -> Iterator[str]:
    """Yield what a hook has returned, as JSON."""
    yield f"  {dump_json(answer).decode()}"


def _results(finding: Finding) -> Iterator[str]:
    """Yield the results of a pipeline's steps."""
    yield from _steps(finding) if isinstance(finding, dict) else _finding(finding)


def _steps(found: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    """Yield the results of a pipeline's steps, those of each prediction below it."""
    for name, finding in found.items():
        yield f"{indent}{name}:{'' if finding else ' nothing'}"
        rows = finding if isinstance(finding, list) else [finding] if finding else []
        for row in rows:
            inner = {key: value for key, value in row.items() if _is_finding(value)}
            own = {key: value for key, value in row.items() if key not in inner}
            words = [str(row["label"])] if "label" in row else []
            yield f"{indent}  {'  '.join([*words, _other_fields(own)])}".rstrip()
            yield from _steps(inner, f"{indent}    ")


def _is_finding(value: Any) -> bool:
    """Return whether a field of a prediction is the result of a step: predictions, or None."""
    return value is None or isinstance(value, dict) or (isinstance(value, list) and all(type(x) is dict for x in value))


def _finding(finding: Finding) -> Iterator[str]:
    """Yield a line for each prediction; a segmentation has a list of classes, an image task has a picture."""
    if isinstance(finding, dict) and "classes" not in finding:
        is_picture = "image" in finding
        yield f"  a picture of {finding['width']}x{finding['height']}" if is_picture else f"  {_other_fields(finding)}"
        return
    found = finding["classes"] if isinstance(finding, dict) else finding
    labels = [str(prediction.get("label", "")) for prediction in found]
    width = max(map(len, labels), default=0)
    yield from (
        f"  {rank}. {label.ljust(width)}  {_other_fields(prediction)}".rstrip()
        for rank, (label, prediction) in enumerate(zip(labels, found, strict=True), 1)
    )
    if not found:
        yield "  nothing found"


def _other_fields(prediction: Mapping[str, Any]) -> str:
    return "  ".join(f"{key} {_value(value)}" for key, value in prediction.items() if key not in _UNSAID)


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else shortened(str(value), _MOST_CHARACTERS)
