"""Attention as a chain of operators: a product, a scale, masks, softmax, and another product.

Chains are found before the walk, so that no matrix of scores is stored: the operators in between are not computed by
themselves. In between, the batch of scores may be reshaped to a finer one: windows of images have a mask for each
window. Operands of the chain must not be needed before its end, and every step in between has one user, the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from engine.compiler.kernels.expr import Apply, Expr, Number, Operand
from engine.compiler.lowering.batched_matrices import batch_splits
from engine.compiler.lowering.rules.movement.views import RESHAPES
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.ir.dims import is_same
from engine.layers.elementwise.comparison import Predicate
from engine.layers.elementwise.identity import Dropout, Identity, RawIdentity
from engine.layers.indexing.masking import MaskedFill, Where
from engine.layers.linear.matmul import Matmul
from engine.layers.normalisation.softmax import Softmax
from engine.passes.support.facts import trains
from engine.tensor import Array, TensorSpec

if TYPE_CHECKING:
    from engine.compiler.lowering.lowering import Lowering

# Operators between the two products.
MAX_STEPS = 10
# Queries multiplied by factors up to this size do not overflow in the product with keys.
MAX_SCALE = float(1 << 20)
BOOL, FLOAT32 = np.dtype(np.bool_), np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class ChainMask:
    """Mask of the scores: a tensor that is added, or that keeps or drops the scores where it is True.

    Args:
        batch: batch dimensions of the scores at that point.
        fill: value of a score that is not kept.
    """

    source: RuntimeOperand | Array
    kind: Literal["add", "keep", "drop"]
    batch: tuple[int, ...]
    fill: float = -np.inf


@dataclass(frozen=True, slots=True)
class ChainScale:
    """Stored factor of the scores of each query, as of heads with a learned scale each.

    Args:
        batch: batch dimensions of the scores at that point.
    """

    source: RuntimeOperand | Array
    batch: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Chain that computes softmax(query @ columns * scale * scales + masks) @ value.

    Args:
        inner: all operators but the last, in execution order.
        last: the product with the value.
        query, columns, value: factors; columns is the key with its last dimensions exchanged.
        is_zero: whether a query that sees no key gives zeros; else NaN.
        batches: batch dimensions of the scores: of the first product, of the softmax, and the finest in between.
    """

    inner: tuple[RuntimeOperator, ...]
    last: RuntimeOperator
    query: RuntimeOperand
    columns: RuntimeOperand
    value: RuntimeOperand
    scale: float
    scales: tuple[ChainScale, ...]
    masks: tuple[ChainMask, ...]
    is_zero: bool
    batches: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its operators, the last first."""
        return self.last.name, *(op.name for op in self.inner)


def find_chains(lowering: Lowering) -> Iterator[Chain]:
    """Yield all chains of a graph."""
    for op in lowering.operators:
        if _is_product(op):
            chain = _Search(lowering, op).chain()
            if chain is not None and not {*chain.names} & {*lowering.refused, *lowering.unfused}:
                yield chain


@dataclass(slots=True)
class _Search:
    """Search for a chain, from its first product on."""

    lowering: Lowering
    first: RuntimeOperator
    factors: list[RuntimeOperand] = field(default_factory=list)
    inner: list[RuntimeOperator] = field(default_factory=list)
    scale: float = 1.0
    scales: list[ChainScale] = field(default_factory=list)
    masks: list[ChainMask] = field(default_factory=list)
    is_weighed: bool = False
    is_zero: bool = False
    batches: list[tuple[int, ...]] = field(default_factory=list)

    def chain(self) -> Chain | None:
        """Return the chain, if there is one."""
        op, scores = self.first, self.lowering.spec(self.first.outputs[0])
        if scores is None or scores.rank < 2 or scores.dtype != FLOAT32 or not scores.size:
            return None
        self.batches.append(scores.sizes[:-2])
        self.factors = [self._unscaled(each) for each in self.first.inputs]
        while len(self.inner) < MAX_STEPS:
            self.inner.append(op)
            operand, following = op.outputs[0], self._next(op)
            if following is None:
                return None
            if self.is_weighed and _is_product(following):
                return self._ended(following, operand)
            spec = self.lowering.spec(following.outputs[0])
            if spec is None or not _is_batch_of(spec, scores):
                return None
            self.batches.append(spec.sizes[:-2])
            if not self._takes(following, operand):
                return None
            op = self._without_nan(following)
        return None

    def _without_nan(self, op: RuntimeOperator) -> RuntimeOperator:
        """Return where(isnan(weights), 0, weights) if it follows a softmax, else the operator itself.

        PyTorch exports it for queries that see no key. NaN of other causes stays NaN, as in PyTorch's own kernel.
        """
        weights = op.outputs[0]
        users = {type(user.definition): user for user in weights.consumers}
        test, choice = users.get(Predicate), users.get(Where)
        if not isinstance(op.definition, Softmax) or len(weights.consumers) != 2 or test is None or choice is None:
            return op
        condition, zero, other = self._arguments(choice)
        is_needed = any(each.name in self.lowering.outputs for each in (weights, test.outputs[0]))
        if is_needed or len(test.outputs[0].consumers) != 1 or test.definition != Predicate(function="isnan"):
            return op
        if condition is not test.outputs[0] or other is not weights or self._number(zero) != 0:
            return op
        if self.lowering.spec(choice.outputs[0]) != self.lowering.spec(weights):
            return op
        self.inner += [op, test]
        self.is_zero = True
        return choice

    def _next(self, op: RuntimeOperator) -> RuntimeOperator | None:
        """Return the only user of an operator's result, or None."""
        if len(op.outputs) != 1 or len(op.outputs[0].consumers) != 1 or op.outputs[0].name in self.lowering.outputs:
            return None
        (user,) = op.outputs[0].consumers
        if user.layer is None or len(user.outputs) != 1:
            return None
        # A computed shape operand of a reshape is known from its result.
        return user if not user.layer.dynamic or isinstance(user.definition, RESHAPES) else None

    def _ended(self, last: RuntimeOperator, weights: RuntimeOperand) -> Chain | None:
        (query, columns), (first, value) = self.factors, last.inputs
        result, scores = self.lowering.spec(last.outputs[0]), self.lowering.spec(weights)
        if first is not weights or value is weights or result is None or scores is None:
            return None
        if not all(map(_is_batch, [*map(self.lowering.spec, (query, columns, value)), result])):
            return None
        if result.shape[:-2] != scores.shape[:-2]:
            return None
        finest = max(self.batches, key=len)
        if any(batch_splits(batch, finest) is None for batch in self.batches):
            return None
        return Chain(
            inner=tuple(self.inner),
            last=last,
            query=query,
            columns=columns,
            value=value,
            scale=self.scale,
            scales=tuple(self.scales),
            masks=tuple(self.masks),
            is_zero=self.is_zero,
            batches=(self.batches[0], self.batches[-1], finest),
        )

    def _unscaled(self, factor: RuntimeOperand) -> RuntimeOperand:
        """Return a factor of the scores before a multiplication by a number, which becomes part of the scale."""
        op = factor.producer
        term = None if op is None or self._next(op) is not self.first else self.lowering.term(op)
        if op is None or term is None or not isinstance(term.tree, Apply) or term.tree.name not in ("mul", "div"):
            return factor
        first, second = term.tree.arguments
        if len(op.inputs) != 1 or not isinstance(first, Operand) or not isinstance(second, Number):
            return factor
        if not self._follows(term.tree, op.inputs[0], op.inputs):
            return factor
        self.inner.append(op)
        return op.inputs[0]

    def _takes(self, op: RuntimeOperator, operand: RuntimeOperand) -> bool:
        """Return whether an operator is a step of attention; record what it does."""
        layer = op.definition
        if isinstance(layer, Dropout | Identity | RawIdentity):
            return op.inputs[0] is operand and not trains(op)
        if isinstance(layer, RESHAPES):
            return op.inputs[0] is operand and operand not in op.inputs[1:]
        if self.is_weighed:
            return False
        if isinstance(layer, Softmax):
            last = len(self.batches[-1]) + 1
            self.is_weighed = layer.axis(last + 1) == last
            return self.is_weighed
        if isinstance(layer, MaskedFill):
            return self._fills(op, operand, "drop")
        if isinstance(layer, Where):
            return self._fills(op, operand, "keep")
        term = self.lowering.term(op)
        if term is None:
            return False
        inputs = [op.inputs[each] if isinstance(each, int) else each for each in term.inputs]
        return self._follows(term.tree, operand, inputs)

    def _fills(self, op: RuntimeOperator, operand: RuntimeOperand, kind: Literal["keep", "drop"]) -> bool:
        """Record masked_fill(scores, mask, number) or where(mask, scores, number); return whether it is one."""
        values = self._arguments(op)
        scores, mask = values[:2] if kind == "drop" else values[1::-1]
        if scores is not operand or not isinstance(mask, RuntimeOperand | np.ndarray) or mask is operand:
            return False
        if (fill := self._number(values[2])) is None:
            return False
        spec = self.lowering.spec(mask) if isinstance(mask, RuntimeOperand) else mask
        if spec is None or spec.dtype != BOOL:
            return False
        self.masks.append(ChainMask(mask, kind, self.batches[-1], fill))
        return True

    def _arguments(self, op: RuntimeOperator) -> list[object]:
        """Return the three arguments of an operator; None for each if there are more or fewer."""
        sources = () if op.layer is None else op.layer.positional
        values = [op.inputs[each.index] if each.index is not None else each.constant for each in sources]
        return values if len(values) == 3 else [None] * 3

    def _number(self, value: object) -> float | None:
        """Return the number that an argument is known to be, or None."""
        if isinstance(value, RuntimeOperand):
            value = self._constant(value)
        if not isinstance(value, bool | int | float | np.ndarray | np.generic) or np.size(value) != 1:
            return None
        return float(np.asarray(value).reshape(()))

    def _constant(self, operand: RuntimeOperand) -> object:
        """Return the stored value of an operand, or the number that it is known to be."""
        op = operand.producer
        if op is not None and op.layer is not None and op.type == "pnnx.Attribute":
            return op.layer.forward([])
        return self.lowering.values.get(operand.name)

    def _follows(self, tree: Expr, operand: RuntimeOperand, inputs: Sequence[RuntimeOperand | Array]) -> bool:
        """Return whether an expression scales the scores or adds to them; record it from the inside out."""
        if isinstance(tree, Operand):
            return inputs[tree.index] is operand
        if not isinstance(tree, Apply) or tree.name not in ("mul", "div", "add", "sub") or len(tree.arguments) != 2:
            return False
        first, second = tree.arguments
        if tree.name in ("mul", "add") and not _reads(first, operand, inputs):
            first, second = second, first
        if _reads(second, operand, inputs) or not self._follows(first, operand, inputs):
            return False
        if isinstance(second, Number) and tree.name in ("mul", "div") and not self.masks:
            self.scale = self.scale * second.value if tree.name == "mul" else self.scale / (second.value or np.nan)
            return bool(np.isfinite(self.scale))
        if isinstance(second, Operand) and tree.name == "mul" and not self.masks:
            self.scales.append(ChainScale(inputs[second.index], self.batches[-1]))
            return self._is_of_queries(inputs[second.index])
        if isinstance(second, Operand) and tree.name == "add":
            self.masks.append(ChainMask(inputs[second.index], "add", self.batches[-1]))
            return True
        return False

    def _is_of_queries(self, source: RuntimeOperand | Array) -> bool:
        """Return whether a stored factor is the same for all keys, so that queries can be multiplied by it instead."""
        value = self._constant(source) if isinstance(source, RuntimeOperand) else source
        if not isinstance(value, np.ndarray) or value.dtype != FLOAT32 or value.shape[-1:] not in ((), (1,)):
            return False
        return bool(np.all((np.abs(value) < MAX_SCALE) & (np.abs(value) > 1 / MAX_SCALE)))


def _is_product(op: RuntimeOperator) -> bool:
    return type(op.definition) is Matmul and len(op.inputs) == 2


def _reads(tree: Expr, operand: RuntimeOperand, inputs: Sequence[RuntimeOperand | Array]) -> bool:
    if isinstance(tree, Operand):
        return inputs[tree.index] is operand
    return isinstance(tree, Apply) and any(_reads(each, operand, inputs) for each in tree.arguments)


def _is_batch_of(spec: TensorSpec, scores: TensorSpec) -> bool:
    """Return whether these are the same matrices, in a batch of the same order."""
    is_alike = is_same(spec.shape[-2:], scores.shape[-2:]) and is_same(spec.size, scores.size)
    return is_alike and spec.dtype == FLOAT32


def _is_batch(spec: TensorSpec | None) -> bool:
    return spec is not None and spec.rank >= 2 and spec.dtype == FLOAT32 and bool(spec.size)
