"""Images standardised where they lie, channels-last: by channel first, then what the channels of a group have together.

With as many pixels to a channel, the mean of a group is that of its channels' means, and its variance the mean of what
pixels differ from those by, squared, and of what those differ by from the group's.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.lowering.result import as_image
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View, row_major

X, Y, Z = Operand(0), Operand(1), Operand(2)


def is_an_image(x: View) -> bool:
    """Whether a tensor (n, c, ...) lies channels-last, of several channels."""
    return x.is_image and x.shape[1] > 1


def standardised(composition: Composition, x: View, groups: int, eps: float, places: Sequence[int]) -> Made:
    """(x - mean) / sqrt(var + eps) * weight + bias, of every item and group of channels.

    Args:
        x: an image, see is_an_image().
        places: of the arguments that are weight and bias, of channels.
    """
    n, channels = x.shape[:2]
    inside = (n, groups, channels // groups)
    mean, var = _statistics(composition, x, groups)
    sizes = [1, channels, *(1,) * (len(x.shape) - 2)]
    weight, bias = (composition.operand(place, sizes) for place in places)
    tree: Expr = apply("reciprocal", apply("sqrt", apply("add", X, eps)))
    wide = [derived(var, var.phantom.broadcast_to(inside))]
    if weight is not None:
        tree = apply("mul", tree, Y)
        wide.append(derived(weight, weight.phantom.reshape(1, *inside[1:]).broadcast_to(inside)))
    scale = composition.map(tree, *wide)
    centre = composition.map(X, derived(mean, mean.phantom.broadcast_to(inside)))
    by_channel = [derived(each, each.phantom.reshape(n, *sizes[1:])) for each in (centre, scale)]
    result: Expr = apply("sub", X, Y)
    if bias is None:
        return composition.finish(apply("mul", result, Z), x, *by_channel)
    return composition.finish(apply("fma", result, Z, Operand(3)), x, *by_channel, bias)


def _statistics(composition: Composition, x: View, groups: int) -> tuple[View, View]:
    """Mean and variance of every item and group, (n, groups, 1)."""
    (n, channels), context = x.shape[:2], composition.context
    image = derived(x, as_image(x.phantom))
    means, spreads = (row_major((len(image.phantom), channels), context.dtype) for _ in range(2))
    composition.fold_pixels(image, "mean", means)
    composition.fold_pixels(image, "spread", spreads, means)
    parts = [derived(each, each.phantom.reshape(n, -1, groups, channels // groups)) for each in (means, spreads)]
    if parts[0].shape[1] * parts[0].shape[3] == 1:
        mean, var = parts
    else:
        mean = composition.reduce(parts[0], [1, 3], "mean")
        apart = apply("square", apply("sub", X, Y))
        var = composition.reduce(composition.map(apply("add", Z, apart), parts[0], mean, parts[1]), [1, 3], "mean")
    inside = (n, groups, 1)
    return derived(mean, mean.phantom.reshape(inside)), derived(var, var.phantom.reshape(inside))
