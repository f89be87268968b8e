"""PyTorch's own values for the operands of a converted graph, matched by the names of submodules.

The converter names an operator after its submodule. If a submodule is called again the operator is ``pnnx_unique_K``,
and if a batch norm was folded into the layer before it, ``convbn2d_K``: such operators are matched in order, if their
number equals that of the calls. Nothing is recorded if a match is uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from numpy.typing import NDArray

import engine
from exporter.tensors import answer, flatten, to_array
from exporter.tracing.functions import plain_attention
from exporter.tracing.modules import single_names

_FUSED: Final = re.compile(r"(conv|convtranspose|linear)bn[123]d_\d+")
_REPEATED: Final = re.compile(r"pnnx_unique_\d+")
_FOLDED: Final = "batch norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call of a submodule."""

    name: str
    kind: str
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """Annotated results of an operator: operand name -> shape."""

    name: str
    kind: str
    shapes: Mapping[str, tuple[int | None, ...]]


def record(model: Any, tensors: Sequence[Any], graph: engine.RuntimeGraph) -> dict[str, NDArray[Any]]:
    """Return the inputs, outputs and all identifiable operands, in the format of `pnnx-serve compare`.

    Args:
        model: the exported module, in evaluation mode.
        tensors: its inputs.
        graph: the converted pair, loaded.

    Returns:
        ``in_0``, ..., ``out_0``, ... and ``operand/NAME``. A TorchScript model gives no operands, as its submodules
        cannot have hooks.
    """
    with plain_attention(), single_names(model), _listening(model) as calls:
        outputs = list(flatten(answer(model, tensors)))
    recorded = {f"in_{index}": to_array(tensor) for index, tensor in enumerate(tensors)}
    for call, made in _matches(calls, list(_operators(graph))):
        recorded.update({f"operand/{name}": array for name, array in _values(call, made)})
    return {**recorded, **{f"out_{index}": to_array(tensor) for index, tensor in enumerate(outputs)}}


@contextmanager
def _listening(model: Any) -> Iterator[list[_Call]]:
    calls: list[_Call] = []
    handles = []
    if not isinstance(model, torch.jit.ScriptModule):
        handles = [module.register_forward_hook(_listener(name, calls)) for name, module in model.named_modules()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _listener(name: str, calls: list[_Call]) -> Any:
    def listen(module: Any, inputs: Any, output: Any) -> None:
        kind = type(module).__name__
        # Copied at once: an in-place layer may change the values later.
        tensors = tuple(to_array(tensor) for tensor in _tensors(output))
        # A root that is itself a layer was wrapped in another module before tracing.
        calls.append(_Call(name=name or "layer", kind=_FOLDED if "BatchNorm" in kind else kind, outputs=tensors))

    return listen


def _tensors(value: Any) -> Iterator[Any]:
    items = value if isinstance(value, (tuple, list)) else [value]
    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (tuple, list)):
            yield from _tensors(item)


def _operators(graph: engine.RuntimeGraph) -> Iterator[_Made]:
    """Yield the operators in the order of the file, which is that of the trace."""
    for op in graph.source.operators:
        specs = {name: graph.operands[name].annotation for name in op.outputs}
        shapes = {name: spec.shape for name, spec in specs.items() if spec is not None}
        kind = _FOLDED if _FUSED.fullmatch(op.name) else op.type.rpartition(".")[2]
        yield _Made(name=op.name, kind=kind, shapes=shapes)


def _matches(calls: Sequence[_Call], operators: Sequence[_Made]) -> Iterator[tuple[_Call, _Made]]:
    first: dict[str, _Call] = {}
    for call in calls:
        first.setdefault(call.name, call)
    named = {made.name for made in operators if made.name in first}
    yield from ((first[made.name], made) for made in operators if made.name in named)
    left = [call for call in calls if not (call.name in named and first[call.name] is call)]
    nameless = [made for made in operators if _FUSED.fullmatch(made.name) or _REPEATED.fullmatch(made.name)]
    for kind in dict.fromkeys(made.kind for made in nameless):
        of_kind = [made for made in nameless if made.kind == kind]
        candidates = [call for call in left if call.kind == kind]
        if len(of_kind) == len(candidates) and all(map(_fits, candidates, of_kind)):
            yield from zip(candidates, of_kind, strict=True)


def _fits(call: _Call, made: _Made) -> bool:
    return any(True for _ in _values(call, made))


def _values(call: _Call, made: _Made) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield a call's results by operand, if their shapes identify them."""
    for name, shape in made.shapes.items():
        fitting = [array for array in call.outputs if _is_of_shape(array, shape)]
        rivals = [other for other in made.shapes.values() if other == shape]
        if len(fitting) == len(rivals) == 1:
            yield name, fitting[0]


def _is_of_shape(array: NDArray[Any], shape: tuple[int | None, ...]) -> bool:
    return array.ndim == len(shape) and all(want in (None, size) for size, want in zip(array.shape, shape, strict=True))
