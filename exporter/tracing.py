"""From a module to a TorchScript file that the converter can read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from exporter.errors import TracingError, describe
from exporter.onnx_model import OnnxModel, copy
from exporter.tensors import has_dict

# A share of 1 by which two ways to compute GELU by tanh may differ; it differs from the exact one by 5e-4.
_EXACT: Final = 1e-5


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
    with _quiet() as caught, whole_norms(model), plain_gelus(model):
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
def plain_attention() -> Iterator[None]:
    """Attention as its formula says: PyTorch's fused encoder layer would arrive as one operator of twenty operands."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def whole_norms(model: Any) -> Iterator[None]:
    """Layer norms without a bias get one of zeros meanwhile: the converter drops the weight of those that have none."""
    bare = [each for each in _modules(model) if isinstance(each, torch.nn.LayerNorm) and _lacks_bias(each)]
    for each in bare:
        each.bias = torch.nn.Parameter(torch.zeros_like(each.weight), requires_grad=False)
    try:
        yield
    finally:
        for each in bare:
            each.bias = None


@contextmanager
def plain_gelus(model: Any) -> Iterator[None]:
    """Modules that write out GELU by tanh call PyTorch's meanwhile; the converter would make the exact one of them."""
    written = [each for each in _modules(model) if _is_gelu_by_tanh(each)]
    for each in written:
        each.forward = _gelu_by_tanh
    try:
        yield
    finally:
        for each in written:
            del each.forward


def _modules(model: Any) -> list[Any]:
    """Of a module that is not scripted yet."""
    return [] if isinstance(model, torch.jit.ScriptModule) else list(model.modules())


def _gelu_by_tanh(x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


def _is_gelu_by_tanh(module: Any) -> bool:
    """Whether a module without weights gives what the formula gives, wherever the exact one gives something else."""
    if isinstance(module, torch.nn.GELU) or module.state_dict() or any(module.children()):
        return False
    x = torch.linspace(-6, 6, 241)
    try:
        found = module(x)
    except Exception:  # of other operands
        return False
    is_alike = isinstance(found, torch.Tensor) and found.shape == x.shape and found.dtype == x.dtype
    return is_alike and bool((found - _gelu_by_tanh(x)).abs().max() < _EXACT)


def _lacks_bias(norm: Any) -> bool:
    return norm.weight is not None and norm.bias is None


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
