"""From an operator as written to a layer that can be called: the one place where arguments are resolved.

An argument is looked up as ``$name`` operand, attribute, parameter, operand by position, default. A parameter
that arrives as an operand makes the field *dynamic*: it is read anew in every run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from engine.errors import EngineError, ExecutionError, ParameterError, ShapeError
from engine.layers.definition.attributes import check_attributes
from engine.layers.definition.dropped_shape import SHAPE_PARAMETERS, is_dropped_shape, shape_list
from engine.layers.definition.failing import unforeseen
from engine.layers.definition.foreign import called, checked_specs, checked_values, is_foreign
from engine.layers.definition.known import MAX_ELEMENTS, with_values
from engine.layers.definition.layer import Annotations, Layer
from engine.layers.definition.parameter import check_number, check_rate, coerce, holds_list
from engine.layers.definition.signature import REQUIRED, Signature
from engine.limits import check_items, check_results
from engine.tensor import UNKNOWN, Array, TensorSpec, is_known, known_value, scalar_tensor, spec_of

_NUMBERS = (int, float, complex)  # bools are ints
_NO_TENSORS = (*_NUMBERS, list, tuple)

# Parameters of several types, which drop nothing at inference.
_RATES: Final = ("dropout", "dropout_p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an argument of forward comes from: an input of the operator, or a constant.

    Args:
        is_tensor: whether forward takes nothing but tensors there. PyTorch has tensors in places where a graph has
            numbers, sizes above all; they become 0-dim ones on the way.
    """

    index: int | None = None
    constant: object = None
    is_tensor: bool = False

    def value(self, inputs: Sequence[object]) -> object:
        """The argument's value, given the operator's inputs."""
        value = self.constant if self.index is None else inputs[self.index]
        return _as_tensors(value) if self.is_tensor and isinstance(value, _NO_TENSORS) else value

    def spec(self, inputs: Sequence[object]) -> object:
        """What is known of the argument, given what is known of the operator's inputs."""
        return spec_of(self.value(inputs))


@dataclass(frozen=True, kw_only=True)
class BoundLayer:
    """A layer together with where its arguments come from; calling it needs only the operator's inputs."""

    signature: Signature
    layer: Layer
    positional: tuple[Source, ...]
    keywords: Mapping[str, Source]
    dynamic: Mapping[str, int]

    def forward(self, inputs: Sequence[object]) -> Any:
        """Compute the operator's outputs from its input values.

        Raises:
            ExecutionError: the layer failed in a way it did not foresee. Other EngineErrors are its own.
            ShapeError: also for a parameter that came as an operand, and for what only operands can be the reason of.
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
        """Where parameters come as operands, it is those of the run that do not fit, not what the file says."""
        return ShapeError.like(error) if self.dynamic else error

    def _unforeseen(self, exc: Exception, inputs: Sequence[object]) -> EngineError:
        wrong = self._no_tensor(inputs)
        if wrong is None:
            return unforeseen(exc, inputs)
        name, value = wrong
        return ShapeError(f"operand '{name}' is no tensor", found=type(value).__name__, expected="a tensor")

    def _forward(self, inputs: Sequence[object]) -> Any:
        layer = self._layer_for(self._meant(inputs)) if self.dynamic else self.layer
        if self.dynamic:
            self._check_results(layer, inputs)
        arguments, keywords = [s.value(inputs) for s in self._aligned], self._keywords(inputs)
        if self.is_foreign:
            return checked_values(called("forward", layer.forward, *arguments, **keywords))
        return layer.forward(*arguments, **keywords)

    def check_results(self, inputs: Sequence[object]) -> None:
        """Refuse to compute what memory cannot hold; where only values decide, the layer itself looks.

        Raises:
            ShapeError: naming the shape and both sizes.
        """
        if not self.dynamic:  # of those forward() finds out anyway
            self._check_results(self.layer, inputs)

    def _check_results(self, layer: Layer, inputs: Sequence[object]) -> None:
        try:
            arguments = [s.spec(inputs) for s in self.positional]
            results = layer.infer(*arguments, **{name: s.spec(inputs) for name, s in self.keywords.items()})
        except Exception:  # whatever it is, forward() says it better
            return
        check_results(results)

    def infer(self, inputs: Sequence[object]) -> Any:
        """What forward will return, from what is known of the inputs; UNKNOWN where that is not enough."""
        result = self._infer(inputs)
        check_items(result)
        return with_values(self.layer, result, list(inputs), self.forward)

    def _infer(self, inputs: Sequence[object]) -> Any:
        arguments = [s.spec(inputs) for s in self.positional]
        keywords = {name: s.spec(inputs) for name, s in self.keywords.items()}
        unknown = any(value is UNKNOWN for value in (*arguments, *keywords.values()))
        if unknown and not self.layer.takes_unknown:
            return UNKNOWN
        values = [_as_far_as_known(value) for value in self._meant(inputs)]
        lists = self._unknown_lists(inputs)
        if not lists:
            return self._announced(values, arguments, keywords)
        try:  # a number, or a list of any length: of use is what holds for one item as well as for two
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

    def _unknown_lists(self, inputs: Sequence[object]) -> list[int]:
        """Inputs of which nothing is known, for parameters that are lists."""
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
        """The name and value of an operand that should be a tensor and is none; None if there is no such operand."""
        names = [name for name in self.signature.operands if name in self.signature.leading]
        for name, source in zip(names, self.positional, strict=False):
            value = source.value(inputs)
            if source.is_tensor and source.index is not None and not isinstance(value, (np.ndarray, np.generic)):
                return name, value
        return None

    def flops(self, output: Any, inputs: Sequence[object]) -> int:
        """Floating-point operations of one forward."""
        return self._counted("flops", output, inputs)

    def scratch_bytes(self, output: Any, inputs: Sequence[object]) -> int:
        """Bytes one forward takes beside copies of its operands and its result."""
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
            raise ExecutionError(f"{method} returned no count", found=f"{count!r:.40}", expected="0 or more")
        return int(count)

    def _layer_for(self, inputs: Sequence[object]) -> Layer:
        if not self.dynamic:
            return self.layer
        fields = {name: _field(self.signature, name, inputs[index]) for name, index in self.dynamic.items()}
        return dataclasses.replace(self.layer, **fields)

    def _meant(self, inputs: Sequence[object]) -> Sequence[object]:
        """The inputs; the shape of one that stands where a shape belongs and can be none.

        Where an ONNX file takes the shape of a tensor as a whole, the converter drops the operator that asks for it.
        """
        asked = [
            index
            for name, index in self.dynamic.items()
            if name in SHAPE_PARAMETERS and is_dropped_shape(inputs[index])
        ]
        if not asked:
            return inputs
        return [shape_list(value) if index in asked else value for index, value in enumerate(inputs)]

    def _keywords(self, inputs: Sequence[object]) -> dict[str, object]:
        return {name: source.value(inputs) for name, source in self._aligned_keywords.items()}

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the layer is a user's, whose answers are checked."""
        return is_foreign(self.layer)

    # Members of the archive are not aligned; BLAS would copy them in every run, so one copy is made at the first.
    @cached_property
    def _aligned(self) -> tuple[Source, ...]:
        return tuple(_align(source) for source in self.positional)

    @cached_property
    def _aligned_keywords(self) -> dict[str, Source]:
        return {name: _align(source) for name, source in self.keywords.items()}


def bind(
    signature: Signature,
    *,
    n_inputs: int,
    params: Mapping[str, object],
    attributes: Mapping[str, Array],
    annotations: Annotations,
) -> BoundLayer:
    """Resolve every argument of an operator.

    Raises:
        ParameterError: an argument is missing, unknown, given twice or of the wrong kind.
    """
    _check_sizes(params)
    given = {signature.renamed.get(key, key): value for key, value in params.items() if key not in signature.ignored}
    for flag in signature.flags:  # announces an attribute; of a functional type it may be the argument itself
        if isinstance(given.get(flag), (bool, int)):
            del given[flag]
    attributes = {key.replace(".", "_"): value for key, value in attributes.items()}
    _check_names(signature, given)
    check_attributes(signature, params, attributes)
    operands = _match_operands(signature, n_inputs, {*given, *attributes}, annotations.labels)
    layer = _make_layer(signature, given, operands, annotations)
    positional, keywords = _sources(signature, given, attributes, operands, n_inputs)
    return BoundLayer(
        signature=signature,
        layer=layer,
        positional=positional,
        keywords=keywords,
        dynamic={name: index for name, index in operands.items() if name in signature.fields},
    )


def _check_sizes(params: Mapping[str, object]) -> None:
    """Numbers beyond 64 bits, lists nobody writes and rates that are none are refused before anything uses them."""
    for name, value in params.items():
        try:
            check_number(value)
            if name in _RATES:
                check_rate(value)
        except ParameterError as error:
            raise error.at(f"parameter '{name}'") from None


def _check_names(signature: Signature, given: Mapping[str, object]) -> None:
    known = {*signature.operands, *signature.fields}
    for name in given:
        if name not in known:
            raise ParameterError(f"unknown parameter '{name}'", expected=", ".join(sorted(known)) or "none")


def _match_operands(
    signature: Signature, n_inputs: int, taken: set[str], labels: Sequence[str | None]
) -> dict[str, int]:
    """Name -> input index, for every input that is not swallowed by ``*operands``."""
    named: dict[str, int] = {}
    if signature.names_operands:
        named = _match_labels(signature, n_inputs, labels)
    free = [slot for slot in signature.slots if slot not in named and slot not in taken]
    rest = [index for index in range(n_inputs) if index not in named.values()]
    if signature.is_variadic:  # what stands before *operands in forward takes the first ones
        leading = [slot for slot in free if slot in signature.leading]
        return {**named, **dict(zip(leading, rest, strict=False))}
    if len(rest) > len(free):
        raise ParameterError(
            "too many operands", found=n_inputs, expected=f"at most {n_inputs - len(rest) + len(free)}"
        )
    return {**named, **dict(zip(free, rest, strict=False))}


def _match_labels(signature: Signature, n_inputs: int, labels: Sequence[str | None]) -> dict[str, int]:
    known = {*signature.operands, *signature.fields}
    named: dict[str, int] = {}
    for index, label in enumerate(labels[:n_inputs]):
        name = signature.renamed.get(label, label) if label is not None else None
        if name in known and name not in named:
            named[name] = index
    # A method's first operand is the tensor itself, whatever a fusion left as its label.
    if signature.type.startswith("Tensor.") and n_inputs and signature.operands:
        named = {name: index for name, index in named.items() if index != 0}
        named[next(iter(signature.operands))] = 0
    return named


def _make_layer(
    signature: Signature, given: Mapping[str, object], operands: Mapping[str, int], annotations: Annotations
) -> Layer:
    fields = dict(signature.presets)
    for name, value in given.items():
        if name in signature.fields and name not in operands:
            fields[name] = _field(signature, name, value)
    for name in signature.required_fields - fields.keys():
        if name not in operands:
            raise ParameterError(f"parameter '{name}' is missing")
        fields[name] = None  # dynamic: read in every run
    if signature.annotations_field is not None:
        fields[signature.annotations_field] = annotations
    if operands.keys() & signature.fields.keys():
        return _unchecked(signature.layer, fields)
    layer: Layer = signature.layer(**fields)
    return layer.settled()


def _unchecked(layer: type[Layer], fields: Mapping[str, object]) -> Layer:
    """A layer whose dynamic fields are still open, so that its own checks must wait for the run."""
    instance = object.__new__(layer)
    for each in dataclasses.fields(layer):
        default = None if each.default is dataclasses.MISSING else each.default
        object.__setattr__(instance, each.name, fields.get(each.name, default))
    return instance


def _field(signature: Signature, name: str, value: object) -> Any:
    try:
        return coerce(value, signature.fields[name])
    except ParameterError as error:
        raise error.at(f"parameter '{name}'") from None


def _sources(
    signature: Signature,
    given: Mapping[str, object],
    attributes: Mapping[str, Array],
    operands: Mapping[str, int],
    n_inputs: int,
) -> tuple[tuple[Source, ...], dict[str, Source]]:
    named: dict[str, Source] = {}
    for name, default in signature.operands.items():
        is_tensor = name in signature.tensors
        if name in attributes:
            named[name] = Source(constant=attributes[name])
        elif name in operands:
            named[name] = Source(index=operands[name], is_tensor=is_tensor)
        elif name in given:
            named[name] = Source(constant=_constant(signature, name, given[name]), is_tensor=is_tensor)
        elif default is not REQUIRED:
            named[name] = Source(constant=default)
        else:
            raise ParameterError(f"operand '{name}' is missing", found=f"{n_inputs} operands")
    extra = {name: Source(constant=value) for name, value in attributes.items() if name not in named}
    positional = [source for name, source in named.items() if name in signature.leading]
    extra |= {name: source for name, source in named.items() if name not in signature.leading}
    if signature.is_variadic:
        taken = {*operands.values(), *(source.index for source in named.values())}
        is_tensor = signature.takes_only_tensors
        positional += [Source(index=index, is_tensor=is_tensor) for index in range(n_inputs) if index not in taken]
    return tuple(positional), extra


def _constant(signature: Signature, name: str, value: object) -> object:
    """A literal in place of a tensor: one number, or None where it may be left out.

    Raises:
        ParameterError: a text or a list, where the layer takes none.
    """
    is_left_out = value is None and signature.is_optional(name)
    if signature.takes_number(name) and not is_left_out and not isinstance(value, _NUMBERS):
        found = repr(value)[:80]
        raise ParameterError("wrong kind of value", where=f"parameter '{name}'", found=found, expected="a number")
    return value


def _as_far_as_known(value: object) -> object:
    """A value as a run will have it; a vector whose elements nobody knows is a list of that many unknown ones."""
    if isinstance(value, TensorSpec) and value.value is None and value.rank == 1:
        count = value.shape[0]
        return UNKNOWN if count is None or count > MAX_ELEMENTS else (UNKNOWN,) * count
    return known_value(value)


def _as_tensors(value: Any) -> Any:
    """Numbers as the tensors PyTorch has for them, those of a list one by one."""
    if isinstance(value, _NUMBERS):
        return scalar_tensor(value)
    return type(value)(map(_as_tensors, value)) if type(value) in (list, tuple) else value


def _align(source: Source) -> Source:
    if not isinstance(source.constant, np.ndarray):
        return source
    array = np.require(source.constant, requirements=["A", "C"]).view()
    array.flags.writeable = False
    return Source(constant=array)
