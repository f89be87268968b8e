"""What PyTorch itself is made to do while a module is traced, where the converter would not understand the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode


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
def plain_functions() -> Iterator[None]:
    """Functions with a derivative of their own (torch.autograd.Function) are what they compute: no trace holds them."""
    with _set((torch.autograd.function._SingleLevelFunction,), "apply", classmethod(_computed)):
        yield


@contextmanager
def plain_scripts() -> Iterator[None]:
    """Functions that would be scripted while they are traced (torch.jit.script_if_tracing) are traced like all others.

    The converter takes what comes after a script for a constant. Methods that are to be scripted beside the trace
    (torch.jit.export) are left out.
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
    """Divisions that round are traced as divisions and what rounds: the converter forgets the ``rounding_mode``."""

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
    """x / y without its fraction; of integers without any that is not exact on the way."""
    if torch.result_type(x, y).is_floating_point:
        return torch.trunc(torch.div(x, y))
    return torch.floor_divide(x - torch.fmod(x, y), y)


_ROUNDED: Final[dict[Any, Callable[[Any, Any], Any]]] = {"trunc": _to_zero, "floor": torch.floor_divide}


@contextmanager
def _set(places: Sequence[Any], name: str, value: Any) -> Iterator[None]:
    """Something else stands under a name meanwhile; it goes where none was."""
    before = [vars(place).get(name) for place in places]
    for place in places:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            delattr(place, name) if was is None else setattr(place, name, was)


def _computed(function: Any, *operands: Any, **named: Any) -> Any:
    """What a function computes; nobody asks for a derivative."""
    if function.setup_context is not torch.autograd.Function.setup_context:
        return function.forward(*operands, **named)
    context = torch.autograd.function.FunctionCtx()
    context.needs_input_grad = (False,) * len(operands)
    return function.forward(context, *operands, **named)
