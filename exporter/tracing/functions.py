"""Temporary changes to PyTorch's functions during tracing, if the converter would not understand the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def plain_attention() -> Iterator[None]:
    """Compute attention by its formula: PyTorch's fused encoder layer would be one operator with twenty operands."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def plain_functions() -> Iterator[None]:
    """Replace functions with their own derivative (torch.autograd.Function) by their forward, which can be traced."""
    with _set((torch.autograd.function._SingleLevelFunction,), "apply", classmethod(_computed)):
        yield


@contextmanager
def plain_scripts() -> Iterator[None]:
    """Trace functions that would be scripted during tracing (torch.jit.script_if_tracing) like all others.

    The converter takes everything after a script for a constant. Methods that are to be scripted in addition to the
    trace (torch.jit.export) are left out.
    """
    before = torch.jit.script

    def script(what: Any, *options: Any, **named: Any) -> Any:
        return what if isinstance(what, FunctionType) else before(what, *options, **named)

    with (
        _set((torch.jit, torch.jit._trace), "script", script),
        _set((torch._jit_internal,), "module_has_exports", lambda module: False),
    ):
        yield


class PlainDivision(TorchFunctionMode):  # type: ignore[misc]  # torch is not seen by the type checker
    """Trace mode for divisions that round, as a division and a rounding: the converter drops the ``rounding_mode``."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        rounded = _ROUNDED.get(kwargs.get("rounding_mode"))
        is_division = getattr(func, "__name__", None) in ("div", "divide")
        if rounded is None or not is_division or len(args) + ("other" in kwargs) != 2 or len(kwargs) > 3 - len(args):
            return func(*args, **kwargs)
        return rounded(args[0], args[1] if len(args) == 2 else kwargs["other"])


def _to_zero(x: Any, y: Any) -> Any:
    """Compute x / y rounded towards zero; for integers with exact intermediate results."""
    if torch.result_type(x, y).is_floating_point:
        return torch.trunc(torch.div(x, y))
    return torch.floor_divide(x - torch.fmod(x, y), y)


_ROUNDED: Final[dict[Any, Callable[[Any, Any], Any]]] = {"trunc": _to_zero, "floor": torch.floor_divide}


@contextmanager
def _set(places: Sequence[Any], name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of some objects while the block runs; it is deleted afterwards where there was none."""
    before = [vars(place).get(name) for place in places]
    for place in places:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            delattr(place, name) if was is None else setattr(place, name, was)


def _computed(function: Any, *operands: Any, **named: Any) -> Any:
    """Return the forward result of a function, without a derivative."""
    if function.setup_context is not torch.autograd.Function.setup_context:
        return function.forward(*operands, **named)
    context = torch.autograd.function.FunctionCtx()
    context.needs_input_grad = (False,) * len(operands)
    return function.forward(context, *operands, **named)
