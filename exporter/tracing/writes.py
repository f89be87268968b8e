"""Writes into views, while a module is traced, as new tensors where the converter would lose them.

``b[8:16].zero_()`` changes ``b``. The converter follows that where the view is a part of what an input gives; what is
written through another view (``chunk``, ``view``, ``transpose``) or into a constant (a copy of a bias, zeros that
windows are summed in) it loses. There a write is recorded as a new tensor with the values, and one with these in their
place for whatever shares memory with it.

Layers that work in place (``nn.ReLU(inplace=True)``) have to stay as they are, or the converter would not know them:
what shares memory with their operand is made anew outside of them, once it is used again.
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

from exporter.tracing.indices import put_at, split_index
from exporter.tracing.placing import placed, untraced

# The converter follows what is written through a view that one of these makes.
_FOLLOWED: Final = frozenset({"__getitem__", "narrow", "select"})
# What these give does not follow from the values of their operand.
_OF_SHAPE: Final = frozenset(
    {"aten::size", "prim::GetAttr"}
    | {f"aten::{kind}_like" for kind in ("zeros", "ones", "full", "empty")}
    | {f"aten::new_{kind}" for kind in ("zeros", "ones", "full", "empty")}
)
# These end like what changes its operand, and do not change values.
_NO_WRITES: Final = frozenset({"requires_grad_", "detach_", "set_", "rename_", "share_memory_"})


@contextmanager
def new_tensors() -> Iterator[None]:
    """Writes that the converter would lose are traced as new tensors meanwhile."""
    writes = Writes()
    # Before a module begins and once it has ended: what is recorded within it would become an operand of it.
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
    """How a tensor came from another one.

    Args:
        parent: the tensor that it is a view of.
        again: makes it of the parent's values as they are by then.
        is_followed: whether the converter follows what is written through it.
    """

    parent: Any
    again: Callable[[Any], Any]
    is_followed: bool


class Writes(TorchFunctionMode):  # type: ignore[misc]  # torch is not seen by the type checker
    """Sees every function that is called while it is entered, and follows what shares memory."""

    def __init__(self) -> None:
        super().__init__()
        self._views: Any = WeakIdKeyDictionary()
        self._of_root: Any = WeakIdKeyDictionary()
        self._unsettled: Any = WeakIdKeyDictionary()
        # What has been made anew: to the tracer its views are tensors of their own since.
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
        """Make operands anew that share memory with what was written to since."""
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
        """Note the views among what a function gave."""
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
        """From a view to the tensor that it is one of in the end."""
        while (view := self._views.get(tensor)) is not None:
            yield view
            tensor = view.parent

    def _root(self, tensor: Any) -> Any:
        for view in self._chain(tensor):
            tensor = view.parent
        return tensor

    def _is_lost(self, target: Any) -> bool:
        """Whether the converter would lose a write, to some that share memory with what is written to."""
        chain, root = [*self._chain(target)], self._root(target)
        if not chain and root not in self._of_root:
            return False
        if root in self._remade:
            return True
        return not chain or not all(view.is_followed for view in chain) or not _depends_on_inputs(root)

    def _replace(self, target: Any, values: Any) -> None:
        """Give a tensor other values, and whatever shares memory with it."""
        with untraced():
            target.copy_(values)
        _become(target, values)
        self._spread(target, values)

    def _spread(self, target: Any, values: Any) -> None:
        """Make anew, to the tracer, whatever shares memory with a tensor that has other values."""
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
    """Whether an index puts in axes of one element."""
    return any(part is None for each in operands[:1] for part in (each if isinstance(each, tuple) else (each,)))


def _is_write(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a function changes its first operand."""
    name = _name(func)
    if name.endswith("_") and not name.endswith("__"):
        return name not in _NO_WRITES
    return name == "__setitem__" or kwargs.get("inplace") is True


def _any_depends(operands: Sequence[Any]) -> bool:
    """Return whether one of some operands is a tensor that follows from an input."""
    return any(isinstance(each, torch.Tensor) and _depends_on_inputs(each) for each in operands)


def _written(func: Any, target: Any, rest: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function would leave in its first operand, as a tensor of its own."""
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
    """A value, of any shape that can be spread, in the shape of a tensor."""
    value = others.get("src", others.get("value", value))
    if not isinstance(value, torch.Tensor):
        return torch.full_like(target, value)
    return value.to(target.dtype).expand_as(target).clone()


def _shares(a: Any, b: Any) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided or a.dtype != b.dtype:
        return False
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def _become(tensor: Any, values: Any) -> None:
    """From here on a tensor is, to the tracer, another one."""
    torch._C._set_value_trace(tensor, torch._C._get_value_trace(values))


def _depends_on_inputs(tensor: Any) -> bool:
    """Whether a tensor's values follow from an input's: the converter computes all others itself."""
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
