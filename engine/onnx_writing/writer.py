"""Writer of ONNX nodes: what rules call to add nodes, and the application of layers to values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from engine.errors import EngineError, UnsupportedOperatorError
from engine.layers.definition.composite import Composite, UnknownSizeError, inferred
from engine.layers.definition.known import is_repeatable
from engine.layers.definition.layer import Layer
from engine.layers.onnx.operands.dtypes import NUMBERS
from engine.onnx_writing.builder import Builder
from engine.onnx_writing.registry import rule_of
from engine.onnx_writing.value import (
    Operand,
    Value,
    as_parameter,
    common_shape,
    described,
    holds_value,
    is_static,
    promoted,
)
from engine.promotion import cast, promote_types, result_type
from engine.tensor import BFLOAT16, UNKNOWN, Array, DType, Shape, TensorSpec

INT64: Final = np.dtype(np.int64)
INT32: Final = np.dtype(np.int32)
BOOL: Final = np.dtype(np.bool_)
FLOAT16: Final = np.dtype(np.float16)
FLOAT32: Final = np.dtype(np.float32)
FLOAT64: Final = np.dtype(np.float64)
END: Final = 2**63 - 1
"""End of a slice that takes all to the end of an axis."""
_FOLDED_BYTES: Final = 1 << 20
"""Results of stored operands up to this size are stored instead; larger ones unless they exceed the operands."""
_NUMBERS: Final = (bool, int, float)

Input: TypeAlias = Value | Array | Sequence[int] | float | None
"""Input of a node: a tensor, an array or a list of integers to store, a number in the dtype of the first tensor."""


def _wider(dtypes: str, wide: DType) -> dict[str, DType]:
    return dict.fromkeys(dtypes.split(), wide)


_COMPARISONS: Final = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_WIDER: Final[Mapping[str, Mapping[str, DType]]] = {
    **dict.fromkeys(("Where", "Clip"), _wider("i2 u2", INT32)),
    **dict.fromkeys(("ReduceSum", "ReduceProd", "CumSum", "Equal"), _wider("i1 u1 i2 u2", INT32)),
    **dict.fromkeys(("ReduceMax", "ReduceMin", *_COMPARISONS), _wider("b1 i1 u1 i2 u2", INT32)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _wider("b1 i1 u1 i2 u2 u4 u8", INT32) | _wider("i8", FLOAT64)),
    "MatMul": _wider("i1 u1 i2 u2", FLOAT64),
    "MaxPool": _wider("i2 u2 i4 u4 i8 u8", FLOAT64),
    "TopK": _wider("b1 i1 u1 i2 u2 u4 u8", INT64),
    "Trilu": _wider("i1 u1 i2 u2 i4 u4 u8", INT64),
}
"""Operator -> dtypes for which runtimes have no kernel -> the dtype that is computed in."""
_RESULTS: Final[Mapping[str, DType]] = {
    **dict.fromkeys((*_COMPARISONS, "Equal", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"), BOOL),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), INT64),
}
"""Operator -> dtype of its result, if it is not that of the operands."""
_ELEMENTWISE: Final = frozenset(
    (*_COMPARISONS, "Equal", "And", "Or", "Xor", "Not", "IsNaN", "IsInf", "Where", "Cast", "Identity", "Add", "Sub")
    + ("Mul", "Div", "Mod", "Pow", "Min", "Max", "Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Sqrt", "Reciprocal")
    + ("Exp", "Log", "Sin", "Sinh", "Tanh", "Atan", "Erf", "Sigmoid", "Softplus", "Clip")
)
"""Operators whose result has the common shape of the operands."""


class Writer(Builder):
    """Writer of the nodes of a model."""

    # Nodes

    def op(
        self, type: str, *inputs: Input, dtype: DType | None = None, shape: Shape | None = None, **attributes: Any
    ) -> Value:
        """Add a node with one output.

        Args:
            dtype: of the output. Default: what the operator gives for the dtype of the first tensor.
            shape: of the output, if it is known. Default: the common one, of element-wise operators.
        """
        (value,) = self.ops(type, inputs, [dtype], **attributes)
        if shape is None and type in _ELEMENTWISE:
            shape = common_shape(*inputs)
        return replace(value, sizes=shape)

    def ops(self, type: str, inputs: Sequence[Input], dtypes: Sequence[DType | None], **attributes: Any) -> list[Value]:
        """Add a node with outputs of these dtypes, None for what the operator gives; in a dtype that runtimes have."""
        tensors = [each for each in inputs[type == "Where" :] if isinstance(each, Value)]
        own = tensors[0].dtype if tensors else INT64
        wide = _WIDER.get(type, {}).get(own.str[1:], own)
        results = [each or _RESULTS.get(type, own) for each in dtypes]
        if any(each.kind == "c" for each in (*results, *(each.dtype for each in tensors))):
            self.refuse("ONNX has no arithmetic of complex numbers", "use real numbers, with a last axis of two parts")
        made = list(results)
        if results[0] == own and type not in _RESULTS:
            made[0] = wide
        outputs = self.node(type, [self._input(each, own, wide) for each in inputs], made, **attributes)
        return [self.cast(each, dtype) for each, dtype in zip(outputs, results, strict=True)]

    def _input(self, given: Input, own: DType, wide: DType) -> Value | None:
        if given is None:
            return None
        if isinstance(given, Value):
            return self.cast(given, wide) if given.dtype == own else given
        if isinstance(given, np.ndarray):
            return self.store(given)
        return self.constant(given, wide) if isinstance(given, _NUMBERS) else self.constant(given, INT64)

    def where(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """Write a choice between two values of one dtype; one may be a number."""
        if BOOL in (each.dtype for each in (a, b) if isinstance(each, Value)):  # runtimes have no kernel for these
            return condition & a | ~condition & b
        return self.op("Where", condition, a, b)

    def take(
        self, value: Value, index: Value | Array | Sequence[int] | int, axis: int, shape: Shape | None = None
    ) -> Value:
        """Write the elements of an axis at an index, whose axes replace it."""
        places = index if isinstance(index, Value) else self.constant(index, INT64)
        return self.op("Gather", value, self.cast(places, INT64), axis=axis, shape=shape)

    def reduce(self, type: str, value: Value, axes: Sequence[int], keepdim: bool = False) -> Value:
        """Write a reduction along axes; a tensor without dimensions counts as a vector of one element."""
        if value.sizes == ():
            return self.reshape(self.op(type, self.reshape(value, (1,)), [0], keepdims=1), ())
        shape = None
        if value.sizes is not None:
            gone = {axis % value.rank for axis in axes}
            kept = [1 if axis in gone else size for axis, size in enumerate(value.sizes) if keepdim or axis not in gone]
            shape = tuple(kept)
        return self.op(type, value, list(axes), keepdims=int(keepdim), shape=shape)

    def counting(self, end: Operand) -> Value:
        """Return 0, 1, ... end - 1 as int64."""
        if not isinstance(end, Value):
            return self.constant(np.arange(end), INT64)
        return self.op("Range", 0, self.cast(end, INT64), 1, shape=(None,))

    def filled(self, sizes: Value, value: Operand, dtype: DType) -> Value:
        """Write a tensor of a shape, given as a vector, full of one number."""
        if isinstance(value, Value) and value.constant is not None and value.constant.size == 1:
            value = value.constant.item()
        if isinstance(value, Value):
            return self.op("Expand", self.reshape(self.cast(value, dtype), ()), sizes)
        number = cast(value, dtype) if isinstance(value, _NUMBERS) and dtype != BOOL else np.asarray(value, dtype)
        shape = None if sizes.constant is None else tuple(map(int, sizes.constant))
        return self.op("ConstantOfShape", sizes, dtype=dtype, shape=shape, value=np.reshape(number, 1))

    def require(self, opset: int) -> None:
        """Let the file use at least this operator set."""
        self.opset = max(self.opset, opset)

    def refuse(self, problem: str, help: str = "") -> NoReturn:
        """Refuse the operator.

        Args:
            problem: why ONNX cannot express it.
            help: what would help.

        Raises:
            UnsupportedOperatorError: always.
        """
        raise UnsupportedOperatorError(f"{problem}; {help}" if help else problem)

    # Values

    def constant(self, value: Any, dtype: DType | type | None = None) -> Value:
        """Store a number, a list of numbers or an array."""
        if isinstance(value, _NUMBERS) and dtype is not None and np.dtype(dtype) != BOOL:
            return self.store(cast(value, np.dtype(dtype)))
        return self.store(np.asarray(value, dtype))

    def tensor(self, operand: Operand, dtype: DType | None = None) -> Value:
        """Return an operand as a tensor, cast to a dtype if one is given; numbers and lists of numbers are stored."""
        if isinstance(operand, Value):
            return operand if dtype is None else self.cast(operand, dtype)
        if isinstance(operand, list | tuple):
            return self._vector_of(operand, dtype)
        if operand is None or isinstance(operand, str):
            self.refuse(f"an operand is {operand!r}, expected a tensor")
        return self.store(np.asarray(operand) if dtype is None else cast(operand, dtype))

    def _vector_of(self, items: Sequence[Operand], dtype: DType | None) -> Value:
        dtype = dtype or result_type(*map(promoted, items))
        if not any(isinstance(each, Value) for each in items):
            return self.store(np.asarray([cast(each, dtype) for each in items]))
        parts = [self.reshape(self.tensor(each, dtype), (1,)) for each in items]
        return self.op("Concat", *parts, axis=0, shape=(len(items),))

    def cast(self, value: Value, dtype: DType) -> Value:
        """Return a value in a dtype; the value itself if it has it."""
        if value.dtype == dtype:
            return value
        if value.dtype.kind == "c" or dtype.kind == "c":
            self.refuse("it casts complex numbers")
        if value.constant is not None and value.constant.size <= 64 and not value.constant.dtype.hasobject:
            return self.store(cast(value.constant, dtype))
        source = value
        # PyTorch and numpy wrap, by way of int64; ONNX leaves the result of numbers out of range undefined.
        if dtype.kind in "iu" and dtype.itemsize < 4 and value.dtype.kind == "f":
            source = self.op("Cast", value, dtype=INT64, to=NUMBERS[INT64])
        return replace(self.op("Cast", source, dtype=dtype, to=NUMBERS[dtype]), is_number=value.is_number)

    def common(self, *operands: Operand) -> tuple[list[Value], DType]:
        """Return operands as tensors of their common dtype by PyTorch's promotion, and that dtype."""
        dtype = result_type(*map(promoted, operands))
        return [self.tensor(each, dtype) for each in operands], dtype

    def widest(self, *operands: Value | None) -> list[Any]:
        """Return tensors in the common dtype of tensors; None stays None."""
        dtype = reduce(promote_types, [each.dtype for each in operands if each is not None])
        return [None if each is None else self.cast(each, dtype) for each in operands]

    # Sizes

    def size(self, value: Value, axis: int) -> Operand:
        """Return a size: a number if it is known, else a tensor of no dimensions."""
        known = value.shape[axis]
        if known is not None:
            return int(known)
        vector = self.sizes(value, axis % value.rank, axis % value.rank + 1)
        scalar = replace(self.op("Squeeze", vector, [0], shape=()), is_number=True)
        self.vectors[scalar.name] = vector
        return scalar

    def sizes(self, value: Value, start: int = 0, end: int | None = None) -> Value:
        """Return the sizes of some axes as a vector."""
        known = value.shape[start:end]
        if None not in known:
            return self.constant(list(known), INT64)
        if start == 0 and end is None:
            return self.op("Shape", value, shape=(value.rank,))
        return self.op("Shape", value, shape=(len(known),), start=start, end=end)

    def vector(self, sizes: Operand) -> Value:
        """Return sizes, some of which may be tensors, as a vector of int64."""
        if isinstance(sizes, Value):
            return self._as_vector(sizes)
        if not any(isinstance(each, Value) for each in sizes):
            return self.constant([int(each) for each in sizes], INT64)
        parts = [self._as_vector(each) if isinstance(each, Value) else self.constant([each], INT64) for each in sizes]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0, shape=(len(parts),))

    def _as_vector(self, value: Value) -> Value:
        if value.name in self.vectors:
            return self.vectors[value.name]
        whole = self.cast(value, INT64)
        if whole.sizes is not None and len(whole.sizes) == 1:
            return whole
        return self.op("Reshape", whole, [-1], shape=(1,))

    def known(self, shape: Iterable[int | None], what: str) -> tuple[int, ...]:
        """Return sizes that must be known.

        Raises:
            UnsupportedOperatorError: one is dynamic.
        """
        sizes = tuple(shape)
        if None in sizes:
            self.refuse(f"{what} must be known before a run", "export the model with fixed sizes")
        return tuple(int(size) for size in sizes if size is not None)

    # Views

    def reshape(self, value: Value, shape: Sequence[Operand]) -> Value:
        """Return a value in another shape; sizes may be tensors, and one may be -1."""
        if value.sizes is not None and tuple(shape) == value.sizes:
            return value
        known = tuple(None if isinstance(size, Value) or size == -1 else size for size in shape)
        has_zero = any(not isinstance(size, Value) and size == 0 for size in shape)
        return self.op("Reshape", value, self.vector(list(shape)), shape=known, allowzero=1 if has_zero else None)

    def like(self, value: Value, shape: Shape) -> Value:
        """Reshape a value to an inferred shape, of which one dimension at most is dynamic.

        Raises:
            UnsupportedOperatorError: more are dynamic.
        """
        if sum(size is None for size in shape) > 1:
            self.refuse("it merges or splits dimensions of dynamic size")
        return replace(self.reshape(value, [-1 if size is None else size for size in shape]), sizes=shape)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Return a value with its axes in another order."""
        if list(order) == list(range(len(order))):
            return value
        shape = tuple(value.shape[axis] for axis in order)
        if value.constant is not None:
            moved = np.ascontiguousarray(value.constant.transpose(order))
            return self.store(moved, f"{value.name}/transposed")
        return self.op("Transpose", value, perm=list(order), shape=shape)

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        """Return a value with axes of size 1 inserted; axes count in the result."""
        rank = value.rank + len(axes)
        new = {axis % rank for axis in axes}
        old = iter(value.shape)
        shape = tuple(1 if axis in new else next(old) for axis in range(rank))
        return self.op("Unsqueeze", value, sorted(new), shape=shape) if axes else value

    def squeeze(self, value: Value, *axes: int) -> Value:
        """Return a value without axes of size 1."""
        gone = sorted(axis % value.rank for axis in axes)
        shape = tuple(size for axis, size in enumerate(value.shape) if axis not in gone)
        return self.op("Squeeze", value, gone, shape=shape)

    def slice(self, value: Value, axis: int, start: Operand, end: Operand, step: int = 1) -> Value:
        """Return a slice of one axis."""
        axis %= value.rank
        shape = list(value.shape)
        size = shape[axis]
        is_known = size is not None and not isinstance(start, Value) and not isinstance(end, Value)
        shape[axis] = len(range(*slice(start, end, step).indices(size))) if is_known and size is not None else None
        bounds = [self.vector([each]) for each in (start, end, axis, step)]
        return self.op("Slice", value, *bounds, shape=tuple(shape))

    # Layers

    def apply(self, layer: Layer, *operands: Operand, **named: Operand) -> Any:
        """Write a layer applied to operands, in the order of its ``forward``; return its results.

        Raises:
            UnsupportedOperatorError: ONNX has no counterpart.
        """
        given = self.stored_arrays(list(operands))
        keywords = {name: self.stored_arrays(each) for name, each in named.items()}
        folded = self._folded(layer, given, keywords)
        if folded is not None:
            return folded
        dtypes = {each.dtype for each in (*given, *keywords.values()) if isinstance(each, Value)}
        rule = rule_of(type(layer))
        if not layer.does_arithmetic or (rule is not None and rule.is_exact) or dtypes.isdisjoint({BFLOAT16, FLOAT16}):
            result = self._written(layer, given, keywords)
            return described_by(result, self._announced(layer, given, keywords))
        if BFLOAT16 in dtypes or isinstance(layer, Composite):
            return self._in_float32(layer, given, keywords)
        before = len(self.graph.nodes)
        result = self._written(layer, given, keywords)
        if len(self.graph.nodes) > before + 1:
            del self.graph.nodes[before:]  # several nodes would round several times
            return self._in_float32(layer, given, keywords)
        return described_by(result, self._announced(layer, given, keywords))

    def _folded(self, layer: Layer, given: list[Operand], keywords: dict[str, Operand]) -> Any:
        """Return the stored result of a layer whose operands are all stored; None if it is not worth storing."""
        rule = rule_of(type(layer))
        operands = [*given, *keywords.values()]
        is_known = is_static(operands) and not any(holds_value(each) for _, each in vars_of(layer))
        if not is_known or (rule is not None and not rule.folds) or not is_repeatable(layer):
            return None
        announced = self._announced(layer, given, keywords)
        used = sum(each.constant.nbytes for each in operands if isinstance(each, Value) and each.constant is not None)
        if not _is_small(announced, max(used, _FOLDED_BYTES)):
            return None
        with np.errstate(all="ignore"):
            named = {name: as_parameter(each) for name, each in keywords.items()}
            result = layer.forward(*[_as_list(as_parameter(each)) for each in given], **named)
        return self.stored_arrays(result, f"{self.scope}/folded")

    def stored_arrays(self, result: Any, name: str = "") -> Any:
        """Return arrays in lists and tuples as stored tensors; other values unchanged."""
        if isinstance(result, list | tuple):
            return type(result)(self.stored_arrays(each, name) for each in result)
        return self.store(result, name) if isinstance(result, np.ndarray) else result

    def _written(self, layer: Layer, given: list[Operand], keywords: dict[str, Operand]) -> Any:
        rule = rule_of(type(layer))
        if rule is None and isinstance(layer, Composite):
            return layer.compose(self.apply, *given, **keywords)
        if rule is None:
            self.refuse("ONNX has no counterpart of this operator")
        for name, parameter in vars_of(layer):
            if holds_value(parameter) and name not in rule.dynamic:
                self.refuse(f"parameter '{name}' must be known before a run", "export the model with fixed sizes")
        return rule.write(self, layer, *given, **keywords)

    def inferred(self, layer: Layer, *operands: Operand) -> TensorSpec:
        """Return the shape and dtype of a layer's result.

        Raises:
            UnknownSizeError: they are unknown before a run.
        """
        spec = inferred(layer, *map(described, operands))
        if not isinstance(spec, TensorSpec):
            raise UnknownSizeError("the shape of the result is unknown before a run")
        return spec

    def _announced(self, layer: Layer, given: list[Operand], keywords: dict[str, Operand]) -> Any:
        """Return the description of a layer's result; UNKNOWN where inference cannot tell."""
        try:
            specs = {name: described(each) for name, each in keywords.items()}
            known = _before_a_run(layer)
            if known is None:
                return UNKNOWN
            if specs:
                return known.infer(*map(described, given), **specs)
            return inferred(known, *map(described, given))
        except (EngineError, UnknownSizeError):
            return UNKNOWN

    def _in_float32(self, layer: Layer, given: list[Operand], keywords: dict[str, Operand]) -> Any:
        """Write a layer of half-precision tensors as the engine computes it: in float32, rounded once."""
        announced = self._announced(layer, given, keywords)
        wide = [_widened(self, each) for each in given]
        result = self._written(layer, wide, {name: _widened(self, each) for name, each in keywords.items()})
        return _rounded(self, result, announced)


def _as_list(operand: Any) -> Any:
    return list(operand) if isinstance(operand, tuple) else operand


def _is_small(announced: Any, most: int) -> bool:
    """Return whether a result is one of known shape, of at most some bytes."""
    if isinstance(announced, list | tuple):
        return all(_is_small(each, most) for each in announced)
    if not isinstance(announced, TensorSpec) or announced.size is None or announced.dtype.kind == "c":
        return False
    return announced.size * announced.dtype.itemsize <= most


def _before_a_run(layer: Layer) -> Layer | None:
    """Return a layer with parameters that only a run decides as unknown sizes; None if their number is unknown."""
    unknown = {name: _blurred(each) for name, each in vars_of(layer) if holds_value(each)}
    if any(each is UNKNOWN for each in unknown.values()):
        return None
    return with_fields(layer, unknown) if unknown else layer


def _blurred(parameter: Any) -> Any:
    if isinstance(parameter, Value):
        count = parameter.sizes[0] if parameter.sizes is not None and len(parameter.sizes) == 1 else None
        return UNKNOWN if count is None else (None,) * count
    return tuple(None if isinstance(each, Value) else each for each in parameter)


def with_fields(layer: Layer, given: Mapping[str, Any]) -> Layer:
    """Return a layer with other parameters, without the checks that need their values."""
    instance = object.__new__(type(layer))
    for name, value in vars_of(layer):
        object.__setattr__(instance, name, given.get(name, value))
    return instance


def vars_of(layer: Layer) -> Iterable[tuple[str, object]]:
    """Yield the parameters of a layer."""
    for each in fields(layer):
        yield each.name, getattr(layer, each.name)


def described_by(result: Any, announced: Any) -> Any:
    """Return results with the shapes and dtypes that inference announces."""
    if isinstance(result, list | tuple):
        if isinstance(announced, list | tuple) and len(announced) == len(result):
            return type(result)(described_by(*pair) for pair in zip(result, announced, strict=True))
        return result
    if not isinstance(result, Value) or not isinstance(announced, TensorSpec) or result.constant is not None:
        return result
    sizes = announced.shape
    if result.sizes is not None and len(result.sizes) == len(sizes):
        sizes = tuple(mine if size is None else size for mine, size in zip(result.sizes, sizes, strict=True))
    return replace(result, sizes=sizes)


def _widened(to: Writer, operand: Operand) -> Operand:
    if isinstance(operand, list | tuple):
        return type(operand)(_widened(to, each) for each in operand)
    is_half = isinstance(operand, Value) and operand.dtype in (BFLOAT16, FLOAT16)
    return to.cast(operand, FLOAT32) if is_half else operand


def _rounded(to: Writer, result: Any, announced: Any) -> Any:
    if isinstance(result, list | tuple) and isinstance(announced, list | tuple):
        return type(result)(_rounded(to, *pair) for pair in zip(result, announced, strict=True))
    if isinstance(result, Value) and isinstance(announced, TensorSpec):
        return described_by(to.cast(result, announced.dtype), announced)
    return result
