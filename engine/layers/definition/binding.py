"""Binding of an operator's arguments: from the operator as written to a layer that can be called.

An argument is looked up as ``$name`` operand, attribute, parameter, operand by position, default. A parameter
that arrives as an operand makes the field *dynamic*: it is read anew in every run.

Attributes are checked against the parameters that announce them and repeat their sizes. A registration declares both:
``flags={"bias": ("bias",)}`` for a parameter that announces an attribute, and
``shapes={"weight": ("out_features", "in_features")}`` for parameters that repeat an attribute's sizes. ``"*name"``
stands for a list parameter, all of whose items are sizes. A parameter that is absent leaves its size unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from engine.errors import ParameterError
from engine.layers.definition.bound import BoundLayer, Source
from engine.layers.definition.layer import Annotations, Layer
from engine.layers.definition.parameter import check_number, check_rate, coerce_named
from engine.layers.definition.signature import REQUIRED, Signature
from engine.layers.operands.axes import may_match
from engine.tensor import Array, Dim, Shape, format_shape


def check_attributes(signature: Signature, params: Mapping[str, object], attributes: Mapping[str, Array]) -> None:
    """Check an operator's attributes against its parameters, both by our names.

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
    """Return the shape of an attribute according to parameters; None if even its rank is unknown."""
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


PRECISION: Final = "precision"
"""Parameter of any operator, which its layer does not see: ``bf16`` if kernels may round the factors of its products to
bfloat16."""
# Dropout rates of several types, which have no effect at inference.
_RATES: Final = ("dropout", "dropout_p")


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
    given = {name: value for name, value in signature.presets.items() if name in signature.operands}
    given |= {signature.renamed.get(key, key): value for key, value in params.items() if key not in signature.ignored}
    _drop_precision(signature, given)
    for flag in signature.flags:  # announces an attribute; for a functional type it may be the argument itself
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
    """Refuse numbers beyond 64 bits, overlong lists and invalid rates before anything uses them."""
    for name, value in params.items():
        try:
            check_number(value)
            if name in _RATES:
                check_rate(value)
        except ParameterError as error:
            raise error.at(f"parameter '{name}'") from None


def _drop_precision(signature: Signature, given: dict[str, object]) -> None:
    """Remove the precision of products, unless it is an argument of the layer's own."""
    if PRECISION in {*signature.operands, *signature.fields}:
        return
    if (found := given.pop(PRECISION, "bf16")) != "bf16":
        raise ParameterError("unknown precision", found=repr(found)[:80], expected="bf16")


def _check_names(signature: Signature, given: Mapping[str, object]) -> None:
    known = {*signature.operands, *signature.fields} - signature.fixed
    for name in given:
        if name not in known:
            raise ParameterError(f"unknown parameter '{name}'", expected=", ".join(sorted(known)) or "none")


def _match_operands(
    signature: Signature, n_inputs: int, taken: set[str], labels: Sequence[str | None]
) -> dict[str, int]:
    """Return the input index of every named operand, without those taken by ``*operands``."""
    named: dict[str, int] = {}
    if signature.names_operands:
        named = _match_labels(signature, n_inputs, labels)
    free = [slot for slot in signature.slots if slot not in named and slot not in taken]
    rest = [index for index in range(n_inputs) if index not in named.values()]
    if signature.is_variadic:  # arguments before *operands in forward take the first inputs
        leading = [slot for slot in free if slot in signature.leading]
        return {**named, **dict(zip(leading, rest, strict=False))}
    if len(rest) > len(free):
        raise ParameterError(
            "too many operands", found=n_inputs, expected=f"at most {n_inputs - len(rest) + len(free)}"
        )
    return {**named, **dict(zip(free, rest, strict=False))}


def _match_labels(signature: Signature, n_inputs: int, labels: Sequence[str | None]) -> dict[str, int]:
    known = {*signature.operands, *signature.fields} - signature.fixed
    named: dict[str, int] = {}
    for index, label in enumerate(labels[:n_inputs]):
        name = signature.renamed.get(label, label) if label is not None else None
        if name is not None and (name in known or signature.takes_any_attribute) and name not in named:
            named[name] = index
    # The first operand of a method is the tensor itself, whatever label a fusion left on it.
    if signature.type.startswith("Tensor.") and n_inputs and signature.operands:
        named = {name: index for name, index in named.items() if index != 0}
        named[next(iter(signature.operands))] = 0
    return named


def _make_layer(
    signature: Signature, given: Mapping[str, object], operands: Mapping[str, int], annotations: Annotations
) -> Layer:
    fields = {name: value for name, value in signature.presets.items() if name in signature.fields}
    for name, value in given.items():
        if name in signature.fields and name not in operands:
            fields[name] = coerce_named(name, value, signature.fields[name])
    for name in signature.required_fields - fields.keys():
        if name not in operands:
            raise ParameterError(f"parameter '{name}' is missing")
        fields[name] = None  # dynamic: read in every run
    if signature.annotations_field is not None:
        fields[signature.annotations_field] = annotations
    if operands.keys() & signature.fields.keys():
        return _unchecked(signature.layer, fields)
    layer: Layer = signature.layer(**fields)
    return layer.canonicalise()


def _unchecked(layer: type[Layer], fields: Mapping[str, object]) -> Layer:
    """Return a layer with unknown dynamic fields, so that its own checks must wait for the run."""
    instance = object.__new__(layer)
    for each in dataclasses.fields(layer):
        default = None if each.default is dataclasses.MISSING else each.default
        object.__setattr__(instance, each.name, fields.get(each.name, default))
    return instance


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
    if signature.takes_any_attribute:
        others = operands.keys() - {*named, *signature.fields}
        extra |= {name: Source(index=operands[name], is_tensor=True) for name in sorted(others)}
    positional = [source for name, source in named.items() if name in signature.leading]
    extra |= {name: source for name, source in named.items() if name not in signature.leading}
    if signature.is_variadic:
        taken = {*operands.values(), *(source.index for source in named.values())}
        is_tensor = signature.takes_only_tensors
        positional += [Source(index=index, is_tensor=is_tensor) for index in range(n_inputs) if index not in taken]
    return tuple(positional), extra


def _constant(signature: Signature, name: str, value: object) -> object:
    """Return a literal in place of a tensor: one number, or None where it may be omitted.

    Raises:
        ParameterError: it is a text or a list, which the layer does not accept.
    """
    is_left_out = value is None and signature.is_optional(name)
    if signature.takes_number(name) and not is_left_out and not isinstance(value, (int, float, complex)):
        found = repr(value)[:80]
        raise ParameterError("wrong kind of value", where=f"parameter '{name}'", found=found, expected="a number")
    return value
