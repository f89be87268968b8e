"""Writes into views, traced as new tensors where the converter would lose them.

``b[8:16].zero_()`` changes ``b``. The converter follows that if the view is a part of a tensor that depends on an
input. It loses writes through other views (``chunk``, ``view``, ``transpose``) or into a constant (a copy of a bias,
zeros for a sum of windows). Such a write is recorded as a new tensor with the values, and one with these in place for
every tensor that shares memory with it.

In-place layers (``nn.ReLU(inplace=True)``) have to stay, or the converter would not recognise them: tensors that share
memory with their operand are recomputed outside of them, when they are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import ref

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from exporter.tracing.view_writes import placed, put_at, split_index, untraced

# The converter follows writes through views made by these.
_FOLLOWED: Final = frozenset({"__getitem__", "narrow", "select"})
# The results of these do not depend on the values of their operand.
_OF_SHAPE: Final = frozenset(
    {"aten::size", "prim::GetAttr"}
    | {f"aten::{kind}_like" for kind in ("zeros", "ones", "full", "empty")}
    | {f"aten::new_{kind}" for kind in ("zeros", "ones", "full", "empty")}
)
# These have the suffix of in-place functions but do not change values.
_NO_WRITES: Final = frozenset({"requires_grad_", "detach_", "set_", "rename_", "share_memory_"})


@contextmanager
def new_tensors() -> Iterator[None]:
    """Trace writes that the converter would lose as new tensors while the block runs."""
    writes = Writes()
    # Before and after each module: tensors recorded within it would become operands of it.
    before = register_module_forward_pre_hook(lambda _, operands: writes.settle(operands))
    after = register_module_forward_hook(lambda _, operands, result: writes.settle((result,)))
    try:
        with writes:
            yield
    finally:
        before.remove()
        after.remove()


@dataclass(frozen=True, slots=True)
class _View:
    """Relation of a tensor to its base.

    Args:
        parent: the tensor that it is a view of.
        again: makes it from the parent's values at that time.
        is_followed: whether the converter follows writes through it.
    """

    parent: Any
    again: Callable[[Any], Any]
    is_followed: bool


class Writes(TorchFunctionMode):  # type: ignore[misc]  # torch is not seen by the type checker
    """Mode that sees every function call while it is active, and follows shared memory."""

    def __init__(self) -> None:
        super().__init__()
        self._views: Any = WeakIdKeyDictionary()
        self._of_root: Any = WeakIdKeyDictionary()
        self._unsettled: Any = WeakIdKeyDictionary()
        # Recomputed tensors: to the tracer their views have been separate tensors since.
        self._remade: Any = WeakIdKeyDictionary()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch._C._get_tracing_state() is None or not args or not isinstance(args[0], torch.Tensor):
            return func(*args, **kwargs)
        self.settle((*args, *kwargs.values()))
        target, *rest = args
        if not _is_write(func, kwargs):
            result = func(*args, **kwargs)
            self._note_all(result, func, args, kwargs)
            return result
        if _name(func) == "__setitem__":
            basic, indices = split_index(rest[0], target.dim())
            part = target[basic]
            self._note(part, target, lambda whole: whole[basic], is_followed=not _has_new_axis([basic]))
            if self._is_lost(part):
                values = _filled(part, rest[1]) if indices is None else put_at(part, indices, rest[1])
                self._replace(part, values)
                return None
        elif self._is_lost(target) or (not _depends_on_inputs(target) and _any_depends([*rest, *kwargs.values()])):
            if kwargs.get("inplace") is True:
                self._unsettled[self._root(target)] = target
            else:
                self._replace(target, _written(func, target, rest, kwargs))
                return target
        return func(*args, **kwargs)

    def settle(self, operands: Sequence[Any]) -> None:
        """Recompute operands that share memory with a tensor that was written to since."""
        for each in operands:
            if isinstance(each, (tuple, list)):
                self.settle(each)
            elif isinstance(each, dict):
                self.settle([*each.values()])
            elif isinstance(each, torch.Tensor) and self._unsettled:
                written = self._unsettled.get(root := self._root(each))
                if written is not None and written is not each:
                    del self._unsettled[root]
                    self._spread(written, written)

    def _note_all(self, result: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Record the views among a function's results."""
        parent, *rest = args
        if isinstance(result, torch.Tensor):
            is_followed = _name(func) in _FOLLOWED and not _has_new_axis(rest)
            self._note(result, parent, lambda whole: func(whole, *rest, **kwargs), is_followed=is_followed)
        elif isinstance(result, (tuple, list)):
            for k, each in enumerate(result):
                if isinstance(each, torch.Tensor):
                    again = partial(lambda whole, k: func(whole, *rest, **kwargs)[k], k=k)
                    self._note(each, parent, again, is_followed=False)

    def _note(self, view: Any, parent: Any, again: Callable[[Any], Any], *, is_followed: bool) -> None:
        if view is parent or view in self._views or not _shares(view, parent):
            return
        self._views[view] = _View(parent, again, is_followed)
        self._of_root.setdefault(self._root(parent), []).append(ref(view))

    def _chain(self, tensor: Any) -> Iterator[_View]:
        """Yield the views from a tensor to its base."""
        while (view := self._views.get(tensor)) is not None:
            yield view
            tensor = view.parent

    def _root(self, tensor: Any) -> Any:
        for view in self._chain(tensor):
            tensor = view.parent
        return tensor

    def _is_lost(self, target: Any) -> bool:
        """Return whether the converter would lose a write for some tensors that share its memory."""
        chain, root = [*self._chain(target)], self._root(target)
        if not chain and root not in self._of_root:
            return False
        if root in self._remade:
            return True
        return not chain or not all(view.is_followed for view in chain) or not _depends_on_inputs(root)

    def _replace(self, target: Any, values: Any) -> None:
        """Give a tensor other values, and all tensors that share its memory."""
        with untraced():
            target.copy_(values)
        _become(target, values)
        self._spread(target, values)

    def _spread(self, target: Any, values: Any) -> None:
        """Recompute, for the tracer, all tensors that share memory with a tensor that has other values."""
        done, root = [target], self._root(target)
        self._remade[root] = True
        for view in self._chain(target):
            values = placed(view.parent, done[-1], values)
            _become(view.parent, values)
            done.append(view.parent)
        for other in [each() for each in self._of_root.get(root, ())]:
            if other is not None and not any(other is each for each in done):
                view = self._views[other]
                _become(other, view.again(view.parent))


def _name(func: Any) -> str:
    return getattr(func, "__name__", "")


def _has_new_axis(operands: Sequence[Any]) -> bool:
    """Return whether an index adds axes of one element."""
    return any(part is None for each in operands[:1] for part in (each if isinstance(each, tuple) else (each,)))


def _is_write(func: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a function changes its first operand."""
    name = _name(func)
    if name.endswith("_") and not name.endswith("__"):
        return name not in _NO_WRITES
    return name == "__setitem__" or kwargs.get("inplace") is True


def _any_depends(operands: Sequence[Any]) -> bool:
    """Return whether one of the operands is a tensor that depends on an input."""
    return any(isinstance(each, torch.Tensor) and _depends_on_inputs(each) for each in operands)


def _written(func: Any, target: Any, rest: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the values that a function would leave in its first operand, as a new tensor."""
    name = _name(func).removesuffix("_")
    if name == "zero":
        return torch.zeros_like(target)
    if name in ("copy", "fill"):
        return _filled(target, *rest[:1], **kwargs)
    pure = getattr(torch.Tensor, name, None)
    if pure is not None and pure is not func:
        return pure(target, *rest, **kwargs).to(target.dtype)
    fresh = target.clone()
    func(fresh, *rest, **kwargs)
    return fresh


def _filled(target: Any, value: Any = 0, **others: Any) -> Any:
    """Return a value, of any shape that broadcasts, in the shape of a tensor."""
    value = others.get("src", others.get("value", value))
    if not isinstance(value, torch.Tensor):
        return torch.full_like(target, value)
    return value.to(target.dtype).expand_as(target).clone()


def _shares(a: Any, b: Any) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided or a.dtype != b.dtype:
        return False
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def _become(tensor: Any, values: Any) -> None:
    """Make a tensor another one for the tracer from here on."""
    torch._C._set_value_trace(tensor, torch._C._get_value_trace(values))


def _depends_on_inputs(tensor: Any) -> bool:
    """Return whether a tensor depends on an input: the converter computes all others itself."""
    waiting, met = [torch._C._get_value_trace(tensor)], set()
    while waiting:
        value = waiting.pop()
        if value.debugName() in met:
            continue
        met.add(value.debugName())
        node = value.node()
        if node.kind() == "prim::Param":
            return True
        if node.kind() not in _OF_SHAPE:
            waiting.extend(node.inputs())
    return False
