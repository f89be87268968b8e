"""From a module to a TorchScript file that the converter can read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from exporter.errors import TracingError, describe
from exporter.onnx_model import OnnxModel, copy
from exporter.preparation import plain_attention, prepared
from exporter.tensors import has_dict


def trace(model: Any, tensors: Sequence[Any], result: Any, path: Path) -> tuple[str, ...]:
    """Write the traced model; TorchScript and ONNX models are written as they are.

    Args:
        model: a module in evaluation mode.
        tensors: its inputs.
        result: what it returned for them.
        path: the file to write.

    Returns:
        What the tracer warned of: places where the trace depends on the example.

    Raises:
        TracingError: with the last line of PyTorch's message.
    """
    if isinstance(model, OnnxModel):
        copy(model, path)
        return ()
    with _quiet() as caught, prepared(model):
        try:
            _script(model, tensors, result).save(str(path))
        except Exception as exc:
            raise TracingError("PyTorch cannot trace the model", found=describe(exc)) from exc
    return tuple(dict.fromkeys(_notes(caught)))


def _script(model: Any, tensors: Sequence[Any], result: Any) -> Any:
    if isinstance(model, torch.jit.ScriptModule):
        return model
    return torch.jit.trace(_as_child(model), tuple(tensors), check_trace=False, strict=not has_dict(result))


@contextmanager
def _quiet() -> Iterator[list[warnings.WarningMessage]]:
    with torch.no_grad(), plain_attention(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def _as_child(model: Any) -> Any:
    """The converter prints a root that is a layer of PyTorch through its functional form, so it is made a child."""
    is_layer = type(model).__module__.startswith("torch.nn.modules.")
    return _Parent(model) if is_layer and not isinstance(model, torch.nn.Sequential) else model


class _Parent(torch.nn.Module):  # type: ignore[misc]  # torch is not seen by the type checker
    def __init__(self, child: Any) -> None:
        super().__init__()
        self.layer = child

    def forward(self, *inputs: Any) -> Any:
        return self.layer(*inputs)


def _notes(caught: Sequence[warnings.WarningMessage]) -> Iterator[str]:
    """Warnings about the user's own lines; PyTorch knows what its layers do while they are traced."""
    torchs_own = str(Path(torch.__file__).parent)
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning) and not warning.filename.startswith(torchs_own):
            text = str(warning.message).partition(". ")[0].splitlines()[0]
            yield f"{Path(warning.filename).name}, line {warning.lineno}: {text}"
