"""Bound layers: a layer together with the sources of its arguments, callable with the operator's inputs alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from engine.errors import EngineError, ExecutionError, ParameterError, ShapeError
from engine.ir.dims import is_symbolic
from engine.layers.definition.foreign import called, checked_specs, checked_values, is_foreign
from engine.layers.definition.known import MAX_ELEMENTS, SHAPE_PARAMETERS, is_dropped_shape, shape_list, with_values
from engine.layers.definition.layer import Layer
from engine.layers.definition.parameter import coerce_named, holds_list
from engine.layers.definition.signature import Signature
from engine.limits import RoomError, check_items, check_results
from engine.tensor import UNKNOWN, TensorSpec, is_known, known_value, scalar_tensor, spec_of

_LONGEST: Final = 500
_SHOWN: Final = 200
_NO_LOOP: Final = "ufunc '"
"""Prefix of numpy's message that it has no loop for some dtypes; not all of these errors have a class of their own."""
# Some numpy functions accept no more dimensions, none more than twice as many, and many layers add one.
_MOST_DIMENSIONS: Final = 31
_NUMBERS = (int, float, complex)  # bools are ints
_NO_TENSORS = (*_NUMBERS, list, tuple)


def unforeseen(exc: Exception, operands: Sequence[object]) -> EngineError:
    """Return the error for an exception of a layer.

    Args:
        operands: the operator's inputs, for the message.
    """
    problem = _problem(exc, operands)
    if problem is None:
        return ExecutionError(f"failed with {type(exc).__name__}: {exc}"[:_LONGEST])
    return ShapeError(problem, found=_shown(operands))


def _problem(exc: Exception, operands: Sequence[object]) -> str | None:
    if isinstance(exc, MemoryError):
        return "there is not enough memory to compute the result of these operands"
    if isinstance(exc, TypeError) and str(exc).startswith(_NO_LOOP):
        return "the operation is not defined for operands of these dtypes"
    if isinstance(exc, OverflowError):
        return "a number among the operands is out of range"
    if isinstance(exc, np.linalg.LinAlgError):
        return f"linear algebra failed for a matrix ({str(exc)[:_SHOWN]})"
    if any(np.ndim(each) > _MOST_DIMENSIONS for each in operands if isinstance(each, np.ndarray)):
        return "an operand has too many dimensions"
    return None


def _shown(operands: Sequence[object]) -> str:
    return ", ".join(_operand(each) for each in operands)[:_SHOWN] or "no operands"


def _operand(value: object) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return str(spec_of(value))
    if isinstance(value, (bool, int, float, complex)):
        return str(spec_of(scalar_tensor(value)))
    return f"{type(value).__name__} {value!r}"[:40]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of an argument of forward: an input of the operator, or a constant.

    Args:
        is_tensor: whether forward accepts only tensors there. Where PyTorch has tensors, a graph may have numbers,
            especially sizes; they are converted to 0-dim tensors.
    """

    index: int | None = None
    constant: object = None
    is_tensor: bool = False

    def value(self, inputs: Sequence[object]) -> object:
        """Return the argument's value, given the operator's inputs."""
        value = self.constant if self.index is None else inputs[self.index]
        return _as_tensors(value) if self.is_tensor and isinstance(value, _NO_TENSORS) else value

    def spec(self, inputs: Sequence[object]) -> object:
        """Return the argument's description, given those of the operator's inputs."""
        return spec_of(self.value(inputs))


@dataclass(frozen=True, kw_only=True)
class BoundLayer:
    """Layer with the sources of its arguments; calling it needs only the operator's inputs."""

    signature: Signature
    layer: Layer
    positional: tuple[Source, ...]
    keywords: Mapping[str, Source]
    dynamic: Mapping[str, int]

    def forward(self, inputs: Sequence[object]) -> Any:
        """Compute the operator's outputs from its input values.

        Raises:
            ExecutionError: the layer raised an unexpected exception; other EngineErrors are its own.
            ShapeError: operands do not fit, including parameters that came as operands.
        """
        try:
            return self._forward(inputs)
        except ParameterError as error:
            raise self._as_operands(error) from error.__cause__
        except EngineError:
            raise
        except Exception as exc:
            raise self._unforeseen(exc, inputs) from exc

    def _as_operands(self, error: ParameterError) -> EngineError:
        """Return the error as ShapeError if parameters come as operands, when values of the run do not fit."""
        return ShapeError.like(error) if self.dynamic else error

    def _unforeseen(self, exc: Exception, inputs: Sequence[object]) -> EngineError:
        wrong = self._no_tensor(inputs)
        if wrong is None:
            return unforeseen(exc, inputs)
        name, value = wrong
        return ShapeError(f"operand '{name}' is not a tensor", found=type(value).__name__, expected="a tensor")

    def _forward(self, inputs: Sequence[object]) -> Any:
        layer = self._layer_for(self._with_shapes(inputs)) if self.dynamic else self.layer
        arguments, keywords = [s.value(inputs) for s in self._aligned], self._keywords(inputs)
        if not layer.infers_itself:
            self._check(layer, arguments, keywords)
        if self.is_foreign:
            return checked_values(called("forward", layer.forward, *arguments, **keywords))
        return layer.forward(*arguments, **keywords)

    def _check(self, layer: Layer, arguments: Sequence[object], keywords: Mapping[str, object]) -> None:
        """Refuse operands that infer() refuses, and results that exceed memory.

        Raises:
            ShapeError: naming what does not fit.
        """
        specs, named = map(spec_of, arguments), {name: spec_of(value) for name, value in keywords.items()}
        try:
            check_results(layer.infer(*specs, **named))
        except RoomError:
            raise
        except EngineError:
            if not layer.takes_unknown and not self.is_foreign:
                raise
        except Exception:  # whatever it is, forward() reports it better
            return

    def infer(self, inputs: Sequence[object]) -> Any:
        """Return the description of forward's result, given those of the inputs; UNKNOWN if that is not enough."""
        result = self._infer(inputs)
        check_items(result)
        return with_values(self.layer, result, list(inputs), self.forward)

    def _infer(self, inputs: Sequence[object]) -> Any:
        arguments = [s.spec(inputs) for s in self.positional]
        keywords = {name: s.spec(inputs) for name, s in self.keywords.items()}
        unknown = any(value is UNKNOWN for value in (*arguments, *keywords.values()))
        if unknown and not self.layer.takes_unknown:
            return UNKNOWN
        values = [_as_far_as_known(value) for value in self._with_shapes(inputs)]
        lists = self._unknown_lists(inputs)
        if not lists:
            return self._announced(values, arguments, keywords)
        try:  # a number, or a list of any length: keep what holds for one item as well as for two
            result = self._announced(values, arguments, keywords)
            for index in lists:
                values[index] = (UNKNOWN, UNKNOWN)
        except EngineError:
            return UNKNOWN
        try:
            other = self._announced(values, arguments, keywords)
        except EngineError:
            return result
        return result if other == result else UNKNOWN

    def with_parameters(self, inputs: Sequence[object]) -> Layer:
        """Return the layer with the parameters that come as operands, from the description of the operator's inputs.

        Raises:
            EngineError: a parameter is unknown or invalid.
        """
        return self._layer_for([_as_far_as_known(value) for value in self._with_shapes(inputs)])

    def _unknown_lists(self, inputs: Sequence[object]) -> list[int]:
        """Return the unknown inputs that are list parameters."""
        fields = self.signature.fields
        return [index for name, index in self.dynamic.items() if inputs[index] is UNKNOWN and holds_list(fields[name])]

    def _announced(self, values: Sequence[object], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        try:
            layer = self._layer_for(values)
        except EngineError:
            if not is_known([values[index] for index in self.dynamic.values()]):
                return UNKNOWN
            raise
        if self.is_foreign:
            return checked_specs(called("infer", layer.infer, *arguments, **keywords))
        return layer.infer(*arguments, **keywords)

    def _no_tensor(self, inputs: Sequence[object]) -> tuple[str, object] | None:
        """Return the name and value of the first operand that should be a tensor and is not; None if all are.

        Variadic operands are named by their position.
        """
        names = [name for name in self.signature.operands if name in self.signature.leading]
        for place, source in enumerate(self.positional):
            value = source.value(inputs)
            if source.is_tensor and source.index is not None and not isinstance(value, (np.ndarray, np.generic)):
                return names[place] if place < len(names) else str(place), value
        return None

    def flops(self, output: Any, inputs: Sequence[object]) -> int:
        """Return the floating-point operations of one forward."""
        return self._counted("flops", output, inputs)

    def scratch_bytes(self, output: Any, inputs: Sequence[object]) -> int:
        """Return the bytes of one forward in addition to copies of its operands and its result."""
        try:
            return self._counted("scratch_bytes", output, inputs)
        except EngineError:
            if self.is_foreign:  # an estimate is not worth failing for
                return 0
            raise

    def _counted(self, method: str, output: Any, inputs: Sequence[object]) -> int:
        arguments = [s.spec(inputs) for s in self.positional]
        if not self.is_foreign:
            return int(getattr(self.layer, method)(output, *arguments))
        count = called(method, getattr(self.layer, method), output, *arguments)
        if not isinstance(count, (int, np.integer)) or count < 0:
            raise ExecutionError(f"{method} returned no valid count", found=f"{count!r:.40}", expected="0 or more")
        return int(count)

    def _layer_for(self, inputs: Sequence[object]) -> Layer:
        if not self.dynamic:
            return self.layer
        fields = {
            name: coerce_named(name, inputs[index], self.signature.fields[name]) for name, index in self.dynamic.items()
        }
        return dataclasses.replace(self.layer, **fields)

    def _with_shapes(self, inputs: Sequence[object]) -> Sequence[object]:
        """Return the inputs, with a tensor in place of a shape parameter replaced by its shape.

        Where an ONNX file uses the shape of a tensor as a whole, the converter drops the operator that asks for it.
        """
        asked = [
            index
            for name, index in self.dynamic.items()
            if name in SHAPE_PARAMETERS and is_dropped_shape(inputs[index])
        ]
        if not asked:
            return inputs
        return [shape_list(value) if index in asked else value for index, value in enumerate(inputs)]

    def forget_copies(self) -> bool:
        """Release aligned copies of weights, which the next call makes again; return whether there were any."""
        found = [self.__dict__.pop(name, None) for name in ("_aligned", "_aligned_keywords")]
        return any(each is not None for each in found)

    def _keywords(self, inputs: Sequence[object]) -> dict[str, object]:
        return {name: source.value(inputs) for name, source in self._aligned_keywords.items()}

    @cached_property
    def is_foreign(self) -> bool:
        """Return whether the layer is a user's, whose results are checked."""
        return is_foreign(self.layer)

    # Members of the archive are not aligned; BLAS would copy them in every run, so they are copied once.
    @cached_property
    def _aligned(self) -> tuple[Source, ...]:
        return tuple(_align(source) for source in self.positional)

    @cached_property
    def _aligned_keywords(self) -> dict[str, Source]:
        return {name: _align(source) for name, source in self.keywords.items()}


def _as_far_as_known(value: object) -> object:
    """Return a value as far as it is known; a vector of unknown elements becomes a list of UNKNOWN."""
    if isinstance(value, TensorSpec) and value.value is None and value.rank == 1:
        count = value.shape[0]
        return UNKNOWN if count is None or is_symbolic(count) or count > MAX_ELEMENTS else (UNKNOWN,) * count
    return known_value(value)


def _as_tensors(value: Any) -> Any:
    """Return numbers as PyTorch's tensors, those of a list one by one."""
    if isinstance(value, _NUMBERS):
        return scalar_tensor(value)
    return type(value)(map(_as_tensors, value)) if type(value) in (list, tuple) else value


def _align(source: Source) -> Source:
    if not isinstance(source.constant, np.ndarray):
        return source
    array = np.require(source.constant, requirements=["A", "C"]).view()
    array.flags.writeable = False
    return Source(constant=array)
