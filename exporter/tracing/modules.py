"""Temporary changes to a module while it is traced, where the converter would get it wrong; undone afterwards."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

# Activations that the converter knows only under their own name; it crashes if they work in place.
_ENDING: Final = (torch.nn.ELU, torch.nn.CELU, torch.nn.Hardtanh, torch.nn.RReLU, torch.nn.Threshold)
# Allowed difference of two ways to compute GELU by tanh; it differs from the exact one by 5e-4.
_EXACT: Final = 1e-5


@contextmanager
def prepared(model: Any, *, is_dynamic: bool = False) -> Iterator[None]:
    """Apply all changes to a module while the block runs; a scripted module is left unchanged.

    Args:
        is_dynamic: whether it is converted with dynamic sizes.
    """
    with ExitStack() as stack:
        if not isinstance(model, torch.jit.ScriptModule):
            for each in (single_names, whole_norms, plain_gelus, new_results):
                stack.enter_context(each(model))
            stack.enter_context(one_mask(model, is_dynamic))
        yield


@contextmanager
def single_names(model: Any) -> Iterator[None]:
    """Copy modules with several names, one for each: the converter looks for weights under one, and calls another.

    Temporal convolutional networks have such modules: a convolution is an attribute, and also part of a sequence.
    """
    replaced: list[tuple[Any, str, Any]] = []
    if not isinstance(model, torch.jit.ScriptModule):
        _give_single_names(model, set(), (), replaced)
    try:
        yield
    finally:
        for parent, name, child in reversed(replaced):
            parent._modules[name] = child


def _give_single_names(
    module: Any, met: set[int], above: tuple[int, ...], replaced: list[tuple[Any, str, Any]]
) -> None:
    """Replace modules that were seen before by copies, and record the originals."""
    met.add(id(module))
    above = (*above, id(module))
    for name, child in [*module._modules.items()]:
        if child is None or isinstance(child, torch.jit.ScriptModule) or id(child) in above:
            continue
        if id(child) in met:
            try:
                copied = copy.deepcopy(child)
            except Exception:  # it cannot be copied, and keeps its names
                continue
            replaced.append((module, name, child))
            child = module._modules[name] = copied
        _give_single_names(child, met, above, replaced)


@contextmanager
def whole_norms(model: Any) -> Iterator[None]:
    """Give layer norms without a bias one of zeros: the converter drops the weight of those without."""
    bare = [each for each in model.modules() if isinstance(each, torch.nn.LayerNorm) and _lacks_bias(each)]
    for each in bare:
        each.bias = torch.nn.Parameter(torch.zeros_like(each.weight), requires_grad=False)
    try:
        yield
    finally:
        for each in bare:
            each.bias = None


@contextmanager
def plain_gelus(model: Any) -> Iterator[None]:
    """Let modules that write out GELU by tanh call PyTorch's; the converter would use the exact one."""
    written = [each for each in model.modules() if _is_gelu_by_tanh(each)]
    for each in written:
        each.forward = _gelu_by_tanh
    try:
        yield
    finally:
        for each in written:
            del each.forward


@contextmanager
def new_results(model: Any) -> Iterator[None]:
    """Let some in-place activations make new tensors, as the converter crashes otherwise."""
    in_place = [each for each in model.modules() if type(each) in _ENDING and each.inplace]
    for each in in_place:
        each.inplace = False
    try:
        yield
    finally:
        for each in in_place:
            each.inplace = True


@contextmanager
def one_mask(model: Any, is_dynamic: bool) -> Iterator[None]:
    """Call attention with a single attention mask if the converter would lose a mask or mistake its kind.

    With ``is_causal``, PyTorch ignores the given mask, and the converter drops both. It labels a padding mask (batch,
    keys) as an attention mask (queries, keys): only their sizes distinguish them, which must be fixed and differ.
    """

    def called(module: Any, operands: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = inspect.signature(module.forward).bind(*operands, **named).arguments
        padding = given.get("key_padding_mask")
        if padding is not None and given["query"].dim() == 3 and (is_dynamic or padding.shape[0] == padding.shape[1]):
            given["attn_mask"] = _spread_mask(module, given["query"], padding, given.get("attn_mask"))
            given["key_padding_mask"] = None
        if given.get("attn_mask") is not None:
            given["is_causal"] = False
        return (), given

    attentions = [each for each in model.modules() if type(each) is torch.nn.MultiheadAttention]
    handles = [each.register_forward_pre_hook(called, with_kwargs=True) for each in attentions]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _spread_mask(module: Any, query: Any, padding: Any, mask: Any) -> Any:
    """Return both masks as one term of the scores of every head, (batch * heads, queries, keys)."""
    queries = query.shape[1 if module.batch_first else 0]
    added = _added(padding, query)[:, None, None, :].expand(-1, module.num_heads, queries, -1)
    if mask is not None:
        mask = _added(mask, query)
        added = added + (mask if mask.dim() == 2 else mask.unflatten(0, (-1, module.num_heads)))
    return added.flatten(0, 1)


def _added(mask: Any, query: Any) -> Any:
    """Return a mask as numbers that are added to scores."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, float("-inf"))


def _gelu_by_tanh(x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


def _is_gelu_by_tanh(module: Any) -> bool:
    """Return whether a module without weights computes GELU by tanh, also where the exact one differs."""
    if isinstance(module, torch.nn.GELU) or module.state_dict() or any(module.children()):
        return False
    x = torch.linspace(-6, 6, 241)
    try:
        found = module(x)
    except Exception:  # it takes other operands
        return False
    is_alike = isinstance(found, torch.Tensor) and found.shape == x.shape and found.dtype == x.dtype
    return is_alike and bool((found - _gelu_by_tanh(x)).abs().max() < _EXACT)


def _lacks_bias(norm: Any) -> bool:
    return norm.weight is not None and norm.bias is None
