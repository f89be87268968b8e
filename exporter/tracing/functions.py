"""What PyTorch itself is made to do while a module is traced, where the converter would not understand the trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch


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
