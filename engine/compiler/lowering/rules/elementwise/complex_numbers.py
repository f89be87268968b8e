"""Element-wise operators of complex numbers of float32: maps of both parts at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.compiler.kernels.expr import Apply, Expr, Number, Operand, apply, is_moderate, operands_of, substitute
from engine.compiler.kernels.functions.complex import PAIRS, REAL_VALUED
from engine.compiler.kernels.functions.math import FUNCTIONS
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import FALLBACKS, kernels_for
from engine.compiler.lowering.steps import COMPLEX64, Lowered, NotLoweredError
from engine.compiler.lowering.terms.functions import converted
from engine.compiler.lowering.terms.term import EXPRESSION_RULES, PREPARATIONS
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.creation.container import Expression
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import arithmetic
from engine.layers.elementwise.complex import Conjugate
from engine.layers.elementwise.functions import Binary, Unary
from engine.promotion import broadcast_sizes


@kernels_for(Conjugate)
def lower_conjugate(context: Context) -> Lowered:
    """Lower conj; real numbers are unchanged."""
    x = context.elements(0)
    return lower_complex_map(context) if x.dtype.kind == "c" else context.lowered(x)


def lower_complex_map(context: Context) -> Lowered:
    """Lower an element-wise operator with a complex operand."""
    layer, spec = context.layer(Layer), context.lowering.spec(context.op.outputs[0])
    if spec is None or not spec.size or spec.dtype not in (COMPLEX64, FLOAT32):
        raise NotLoweredError("its result is known only at run time, has no elements, or has an unusual dtype")
    views, arguments = _operands(context)
    tree = _tree_of(context, layer, arguments, views)
    is_complex = any(each.dtype == COMPLEX64 for each in views)
    if tree is None or not is_complex or not is_moderate(tree):
        raise NotLoweredError("there are no complex64 kernels")
    parts = _Parts(Composition(context), views)
    if spec.dtype == FLOAT32 and not parts.is_cut(tree):
        return parts.composition.finish(*parts.real_form(tree))
    target = context.allocate() if spec.dtype == FLOAT32 else row_major(spec.sizes, COMPLEX64)
    parts.store(tree, target)
    return context.lowered(target, *parts.composition.steps)


_WRITTEN = (Unary, Binary, Expression, arithmetic.Add, arithmetic.Sub, arithmetic.Div)
FALLBACKS.update(dict.fromkeys(_WRITTEN, lower_complex_map))


def _operands(context: Context) -> tuple[list[View], list[Expr | None]]:
    """Return tensors in memory, and the arguments of forward as terms, None where one is left out."""
    if context.bound.keywords or context.lowering.quantises:
        raise NotLoweredError("its operands are not those of an element-wise kernel")
    views: list[View] = []
    terms: list[Expr | None] = []
    for index, value in enumerate(context.arguments()):
        if value is None or isinstance(value, bool | int | float):
            terms.append(None if value is None else Number(float(value)))
            continue
        view = context.elements(index)
        if view.dtype not in (COMPLEX64, FLOAT32):
            raise NotLoweredError("complex numbers are combined with other dtypes than float32")
        terms.append(Operand(len(views)))
        views.append(view)
    return views, terms


def _tree_of(context: Context, layer: Layer, arguments: Sequence[Expr | None], views: list[View]) -> Expr | None:
    """Return the expression; complex literals become operands."""
    # These are one complex function, but an expression of several real ones.
    name = "conj" if isinstance(layer, Conjugate) else "angle" if layer == Unary(function="angle") else None
    if name is not None:
        return apply(name, *(each for each in arguments if each is not None))
    if isinstance(layer, Expression):

        def written(value: object) -> Expr | None:
            if not isinstance(value, complex):
                return None
            views.append(context.lowering.stored(np.array(value, COMPLEX64)))
            return Operand(len(views) - 1)

        return converted(layer.tree, arguments, written)
    rule = None if type(layer) in PREPARATIONS else EXPRESSION_RULES.get(type(layer))
    return None if rule is None else rule(layer, *arguments)


@dataclass(slots=True)
class _Parts:
    """Expression split into real and complex parts.

    Real parts are computed as real numbers: complex arithmetic gives other results where parts are not finite.

    Args:
        composition: receives the kernels.
        views: operands of the expression; computed real numbers are appended.
    """

    composition: Composition
    views: list[View]

    def store(self, tree: Expr, target: View) -> None:
        """Add the kernel of an expression of complex numbers, or of a real-valued function of them."""
        if isinstance(tree, Apply) and self.is_cut(tree):
            tree = Apply(tree.name, tuple(self._pairs(each) for each in tree.arguments))
        else:
            tree = self._pairs(tree)
        used = sorted(operands_of(tree))
        places = {number: Operand(place) for place, number in enumerate(used)}
        tree = substitute(tree, [places.get(number, Operand(0)) for number, _ in enumerate(self.views)])
        self.composition.typed(target, tree, *(self.views[number] for number in used), domain="pair")

    def real_form(self, tree: Expr) -> tuple[Expr, *tuple[View, ...]]:
        """Return a real expression with complex-to-real functions as operands, and all its operands."""
        found: dict[Expr, Expr] = {}
        operands: list[View] = []

        def seen(part: Expr) -> Expr:
            if isinstance(part, Number) or part in found:
                return found.get(part, part)
            if isinstance(part, Apply) and not self.is_cut(part):
                if part.name not in FUNCTIONS:
                    raise NotLoweredError("there are no complex64 kernels")
                return Apply(part.name, tuple(seen(each) for each in part.arguments))
            found[part] = Operand(len(operands))
            operands.append(self._real(part))
            return found[part]

        return seen(tree), *operands

    def _real(self, part: Expr) -> View:
        """Return a real operand, or a real-valued function of complex numbers, in new memory."""
        if isinstance(part, Operand):
            return self.composition.context.stored(self.views[part.index])
        sizes = broadcast_sizes(*(self.views[index].shape for index in operands_of(part)))
        target = row_major(sizes, FLOAT32)
        self.store(part, target)
        return target

    def _pairs(self, tree: Expr) -> Expr:
        """Return an expression of complex numbers; real parts of it are computed before.

        Raises:
            NotLoweredError: a function has no complex kernel.
        """
        if isinstance(tree, Number):
            return apply("real", tree)
        if isinstance(tree, Operand):
            return tree
        if self._is_real(tree):
            self.views.append(self.composition.map(*self.real_form(tree)))
            return Operand(len(self.views) - 1)
        if tree.name not in PAIRS:
            raise NotLoweredError("there are no complex64 kernels")
        return Apply(tree.name, tuple(self._pairs(each) for each in tree.arguments))

    def _is_real(self, tree: Expr) -> bool:
        """Return whether an expression is real."""
        if isinstance(tree, Operand):
            return self.views[tree.index].dtype != COMPLEX64
        if isinstance(tree, Number) or tree.name in REAL_VALUED:
            return True
        return all(self._is_real(each) for each in tree.arguments)

    def is_cut(self, tree: Expr) -> bool:
        """Return whether it is a function that maps a complex number to a real one."""
        if not isinstance(tree, Apply) or tree.name not in REAL_VALUED:
            return False
        return not all(self._is_real(each) for each in tree.arguments)
