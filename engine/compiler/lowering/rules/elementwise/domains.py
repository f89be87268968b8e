"""What elements of a dtype are computed with, and where results of maps over several dtypes lie."""

from __future__ import annotations

from engine.compiler.kernels.elements import COMPUTED, Domain
from engine.compiler.kernels.expr import Apply, Expr
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import FLOAT32, NotLoweredError
from engine.compiler.storage import View, like, row_major
from engine.ir.dims import is_same
from engine.promotion import cast
from engine.tensor import Array, DType, Number, TensorSpec, dtype_name

_DOMAINS: dict[str, Domain] = {"float32": "float", "float64": "double", "uint64": "u64"}
# What an int64 has of its sign, and the numbers that are written without one from there on.
_SIGN, _WRAP = 2**63, 2**64


def domain_of(dtype: DType) -> Domain:
    """What elements of a dtype are computed with.

    Raises:
        NotLoweredError: nothing computes with them.
    """
    if dtype.name not in COMPUTED:
        raise NotLoweredError(f"there are no {dtype_name(dtype)} kernels")
    return _DOMAINS.get(dtype.name, "i64")


def number_of(value: Array | Number, dtype: DType) -> bool | int | float:
    """A number in a dtype, as kernels write it: of uint64 the int64 of the same bits."""
    number: bool | int | float = cast(value, dtype).item()
    return number - _WRAP if isinstance(number, int) and number >= _SIGN else number


def names_of(tree: Expr) -> set[str]:
    """The functions that a tree applies."""
    if not isinstance(tree, Apply):
        return set()
    return {tree.name}.union(*(names_of(each) for each in tree.arguments))


def target_of(context: Context, spec: TensorSpec, x: View) -> View:
    """Memory for a result; bytes lie as those images do that they are made of, and floats as the bytes."""
    if is_same(spec.sizes, x.shape) and x.is_channels_last and not x.is_row_major:
        if spec.dtype.itemsize == 1 and spec.dtype.kind in "iu":
            return like(x, spec.dtype)
        if spec.dtype == FLOAT32 and x.dtype.itemsize == 1 and x.dtype.kind in "iu":
            return context.place(is_image=True)
    return context.place() if spec.dtype == FLOAT32 else row_major(spec.sizes, spec.dtype)
