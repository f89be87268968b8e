"""Attributes against the parameters that announce them and repeat their sizes.

A registration says both: ``flags={"bias": ("bias",)}`` that a parameter announces an attribute, and
``shapes={"weight": ("out_features", "in_features")}`` which parameters repeat an attribute's sizes. ``"*name"`` stands
for a list parameter, all of whose items are sizes. A parameter that is absent leaves its size open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.errors import ParameterError
from engine.layers.definition.parameter import coerce_named
from engine.layers.definition.signature import Signature
from engine.layers.operands.axes import may_match
from engine.tensor import Array, Dim, Shape, format_shape


def check_attributes(signature: Signature, params: Mapping[str, object], attributes: Mapping[str, Array]) -> None:
    """Hold an operator's attributes against its parameters, by our names of both.

    Raises:
        ParameterError: an attribute is missing, unknown or of another shape than the parameters say.
    """
    for name in attributes:
        if name not in signature.operands and not signature.takes_any_attribute:
            raise ParameterError(
                f"unknown attribute '{name}'", expected=", ".join(signature.operands) or "no attribute"
            )
    for flag, names in signature.flags.items():
        missing = [name for name in names if name not in attributes]
        if missing and params.get(flag) in (True, 1):
            raise ParameterError(f"attribute '{missing[0]}' is missing", found=f"{flag}=True without it")
    for name, sizes in signature.shapes.items():
        if name in attributes:
            _check_shape(name, attributes[name].shape, sizes, params)


def announced_shape(sizes: Sequence[str], params: Mapping[str, object]) -> Shape | None:
    """The shape that parameters give an attribute; None where even its rank is open."""
    dims: list[Dim] = []
    for size in sizes:
        name = size.removeprefix("*")
        if name == size:
            dims.append(None if params.get(name) is None else coerce_named(name, params[name], int))
        elif params.get(name) is None:
            return None
        else:
            dims.extend(coerce_named(name, params[name], tuple[int, ...]))
    return tuple(dims)


def _check_shape(name: str, found: Shape, sizes: Sequence[str], params: Mapping[str, object]) -> None:
    expected = announced_shape(sizes, params)
    if expected is not None and not may_match(found, expected):
        raise ParameterError(
            f"attribute '{name}' does not fit the parameters",
            found=format_shape(found),
            expected=f"{format_shape(expected)}, that is [{', '.join(sizes)}]",
        )
