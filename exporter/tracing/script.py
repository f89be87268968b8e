"""From a module to a TorchScript file that the converter can read."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from exporter.errors import TracingError, describe
from exporter.onnx_files import OnnxModel, copy
from exporter.tensors import has_dict
from exporter.tracing import writes
from exporter.tracing.functions import PlainDivision, plain_attention, plain_functions, plain_scripts
from exporter.tracing.modules import prepared


def trace(model: Any, tensors: Sequence[Any], result: Any, path: Path, *, is_dynamic: bool = False) -> tuple[str, ...]:
    """Write the traced model; ONNX models and traced TorchScript models are written as they are.

    Args:
        model: a module in evaluation mode.
        tensors: its inputs.
        result: what it returned for them.
        path: the file to write.
        is_dynamic: whether it is converted with dynamic sizes.

    Returns:
        The tracer's warnings: lines where the trace depends on the example.

    Raises:
        TracingError: with the last line of PyTorch's message.
    """
    if isinstance(model, OnnxModel):
        copy(model, path)
        return ()
    with _quiet() as caught, prepared(model, is_dynamic=is_dynamic):
        try:
            _script(model, tensors, result).save(str(path))
        except Exception as exc:
            raise TracingError("PyTorch cannot trace the model", found=describe(exc)) from exc
    return tuple(dict.fromkeys(_notes(caught)))


def _script(model: Any, tensors: Sequence[Any], result: Any) -> Any:
    if isinstance(model, torch.jit.ScriptModule):
        return torch.jit.freeze(model) if _is_compiled(model) else model
    with plain_functions(), plain_scripts(), PlainDivision():
        try:
            with writes.new_tensors():
                traced = _traced(model, tensors, result)
        except Exception:  # writes cannot be followed; the converter may follow them itself
            traced = _traced(model, tensors, result)
    _drop_empty_calls(traced)
    return traced


def _is_compiled(model: Any) -> bool:
    """Return whether torch.jit.script made a module: the converter crashes at branches and at calls of functions."""
    methods = [(name, module._c._get_method(name)) for module in model.modules() for name in module._c._method_names()]
    return any(
        name != "forward" or any(map(method.graph.findAllNodes, ("prim::If", "prim::CallFunction")))
        for name, method in methods
    )


def _traced(model: Any, tensors: Sequence[Any], result: Any) -> Any:
    return torch.jit.trace(_as_child(model), tuple(tensors), check_trace=False, strict=not has_dict(result))


def _drop_empty_calls(traced: Any) -> None:
    """Remove calls of modules that ended in a caught error, at which the converter crashes."""
    for module in traced.modules():
        for name in module._c._method_names():
            for node in module._c._get_method(name).graph.findAllNodes("prim::CallMethod"):
                if len([*node.inputs()]) == 1 and not any(output.uses() for output in node.outputs()):
                    node.destroy()


@contextmanager
def _quiet() -> Iterator[list[warnings.WarningMessage]]:
    with torch.no_grad(), plain_attention(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.showwarning = lambda *warning, **_: caught.append(_where_called(*warning[:4]))
        yield caught


def _where_called(message: Any, category: type[Warning], filename: str, lineno: int) -> warnings.WarningMessage:
    """Show a warning at the line that called the function, not at the line that passed it on."""
    frame = sys._getframe()
    while Path(filename).parent == Path(__file__).parent and frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename != warnings.__file__:
            filename, lineno = frame.f_code.co_filename, frame.f_lineno
    return warnings.WarningMessage(message, category, filename, lineno)


def _as_child(model: Any) -> Any:
    """Return a root that is a PyTorch layer as a child module: the converter would print it in its functional form."""
    is_layer = type(model).__module__.startswith("torch.nn.modules.")
    return _Parent(model) if is_layer and not isinstance(model, torch.nn.Sequential) else model


class _Parent(torch.nn.Module):  # type: ignore[misc]  # torch is not seen by the type checker
    def __init__(self, child: Any) -> None:
        super().__init__()
        self.layer = child

    def forward(self, *inputs: Any) -> Any:
        return self.layer(*inputs)


def _notes(caught: Sequence[warnings.WarningMessage]) -> Iterator[str]:
    """Yield warnings about the user's own lines; those about PyTorch's layers are irrelevant."""
    torchs_own = str(Path(torch.__file__).parent)
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning) and not warning.filename.startswith(torchs_own):
            text = str(warning.message).partition(". ")[0].splitlines()[0]
            yield f"{Path(warning.filename).name}, line {warning.lineno}: {text}"
