"""Operators that pnnx leaves in a pair under ONNX's names, translated like those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

import numpy as np

from engine.errors import EngineError, UnsupportedOperatorError
from engine.layers import registry
from engine.onnx.translation.builder import Builder, used
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translator_of
from engine.onnx.translation.value import Value, constant
from engine.pnnx.graph import Graph, Operator
from engine.tensor import UNKNOWN, TensorSpec

_NEWEST: Final = 1 << 16
"""A pair does not say which operator set it was made from; translators of the newest take the older forms."""

_OPERANDS: Final[Mapping[str, Sequence[str]]] = {
    "AffineGrid": ("theta", "size"),
    "Attention": ("query", "key", "value", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"),
    "CenterCropPad": ("input", "shape"),
    "Col2Im": ("input", "image_shape", "block_shape"),
    "ConstantOfShape": ("shape",),
    "DFT": ("input", "dft_length", "axis"),
    "DeformConv": ("input", "weight", "offset", "bias", "mask"),
    "Expand": ("input", "shape"),
    "Gather": ("input", "indices"),
    "OneHot": ("indices", "depth", "values"),
    "Pad": ("input", "pads", "value", "axes"),
    "Range": ("start", "limit", "delta"),
    "Reshape": ("input", "shape"),
    "Resize": ("input", "roi", "scales", "sizes"),
    "STFT": ("signal", "frame_step", "window", "frame_length"),
    "Slice": ("input", "starts", "ends", "axes", "steps"),
    "Squeeze": ("input", "axes"),
    "TensorScatter": ("input", "update", "write_indices"),
    "Tile": ("input", "repeats"),
    "TopK": ("input", "k"),
    "Unsqueeze": ("input", "axes"),
    "Upsample": ("input", "scales"),
}
"""Names of operands, in order, that a pair may have as parameters or leave out."""

_WITH_BODIES: Final = ("If", "Loop", "Scan", "SequenceMap")


def with_core_operators(source: Graph) -> Graph:
    """Return the graph with every ONNX operator that has no layer translated."""
    builder, makers = Builder(), {name: op for op in source.operators for name in op.outputs}
    for op in source.operators:
        if not _is_left(op):
            builder.operator_name(op.name)
        for name in (*op.inputs, *op.outputs):
            builder.operand_name(name)
    if not any(map(_is_left, source.operators)):
        return source
    operators: list[Operator] = []
    known = dict(source.annotations)
    for op in source.operators:
        if _is_left(op):
            operators += _translated(op, builder, makers, known)
        else:
            operators.append(op)
            _infer(op, builder, makers, known)
    made = {name for op in operators for name in op.outputs}
    inner = {name: spec for name, spec in builder.annotations.items() if name in made}
    return replace(source, operators=operators, annotations={**inner, **source.annotations})


def _infer(op: Operator, builder: Builder, makers: Mapping[str, Operator], known: dict[str, TensorSpec]) -> None:
    """Add what follows of the results of an operator, where the file has no annotation."""
    if op.type not in registry or all(name in known for name in op.outputs):
        return
    inputs, notes = [_value(name, makers, known) for name in op.inputs], [known.get(name) for name in op.outputs]
    try:
        results, _ = builder.follow(op.type, inputs, op.params, op.attributes, op.labels, len(op.outputs), notes)
    except EngineError:  # reported where the graph is built
        return
    specs = zip(op.outputs, results, strict=True)
    known |= {name: spec for name, spec in specs if isinstance(spec, TensorSpec) and name not in known}


def _is_left(op: Operator) -> bool:
    is_known = op.type in registry or op.type in _WITH_BODIES or not op.type.isidentifier()
    return not is_known and translator_of("", op.type, _NEWEST) is not None


def _translated(
    op: Operator, builder: Builder, makers: Mapping[str, Operator], annotations: dict[str, TensorSpec]
) -> Iterator[Operator]:
    """Yield the operators that compute the same; the last ones make the operands of the given one."""
    translator = translator_of("", op.type, _NEWEST)
    first = len(builder.operators)
    node = Node(
        type=op.type,
        name=op.name,
        domain="",
        version=_NEWEST,
        inputs=_inputs(op, makers, annotations),
        attributes={key: value for key, value in op.params.items() if key not in _OPERANDS.get(op.type, ())},
        outputs=op.outputs,
        builder=builder,
        subgraph=_refused,
        inline=_refused,
        declared=[annotations.get(name) for name in op.outputs],
        names_results=any(op.labels),
    )
    try:
        found = None if translator is None else translator(node)
        if found is None:
            raise UnsupportedOperatorError("the pair does not say enough to translate it")
        results: Sequence[Value] = [found] if isinstance(found, Value) else found
        names = {}
        for value, name in zip(results, op.outputs, strict=False):
            made = {each for new in builder.operators[first:] for each in new.outputs}
            if value.name not in made or value.name in names:
                (value,) = builder.add("nn.Identity", op.name, [value])
            names[builder.operand(value)] = name
            if value.tensor is not None:
                annotations.setdefault(name, value.tensor)
    except EngineError as error:
        raise error.at(f"{op.name} ({op.type})") from error.__cause__
    for new in used(builder.operators[first:], names):
        inputs, outputs = (tuple(names.get(name, name) for name in each) for each in (new.inputs, new.outputs))
        yield replace(new, inputs=inputs, outputs=outputs, line=op.line)


def _inputs(
    op: Operator, makers: Mapping[str, Operator], annotations: Mapping[str, TensorSpec]
) -> Sequence[Value | None]:
    """Return the inputs in ONNX's order; those that are parameters or attributes become constants."""
    given = [_value(name, makers, annotations) for name in op.inputs]
    names = _OPERANDS.get(op.type)
    if names is None:
        return [*given, *_stored(op)]
    found: dict[str, Value] = {key: constant(np.asarray(op.params[key])) for key in names if key in op.params}
    found |= {key: constant(op.attributes[key].data) for key in names if key in op.attributes}
    found |= {
        label: value for label, value in zip(op.labels, given, strict=False) if label is not None and label in names
    }
    rest = iter([value for label, value in zip(op.labels, given, strict=True) if label not in names])
    return [*(found.get(name) or next(rest, None) for name in names), *rest]


def _value(name: str, makers: Mapping[str, Operator], annotations: Mapping[str, TensorSpec]) -> Value:
    """Return an operand, with its elements where it is a constant."""
    maker, spec = makers.get(name), annotations.get(name)
    if maker is not None and maker.type == "pnnx.Attribute" and "data" in maker.attributes:
        value = constant(maker.attributes["data"].data)
    elif (number := _number(maker)) is not None:
        kind = np.float32 if isinstance(number, float) else None  # a pair has no other single floats
        value = constant(np.asarray(number, kind if spec is None else spec.dtype))
    else:
        return Value(name, UNKNOWN if spec is None else spec)
    value.name = name
    return value


def _stored(op: Operator) -> list[Value]:
    """Return the tensors stored with an operator, which follow its operands."""
    return [constant(attribute.data) for attribute in op.attributes.values()]


def _number(maker: Operator | None) -> int | float | bool | None:
    """Return the number that an expression without operands stands for."""
    if maker is None or maker.type != "pnnx.Expression" or maker.inputs:
        return None
    for read in (int, float):
        try:
            return read(str(maker.params.get("expr")))
        except ValueError:
            continue
    return None


def _refused(*arguments: Any, **options: Any) -> NoReturn:
    raise UnsupportedOperatorError("a pair has no bodies of operators")
