"""Hypothesis strategies for graphs the format can express."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engine.pnnx import Attribute, Graph, Operator, Parameter
from engine.tensor import DTYPES, Array, Shape, TensorSpec

# No blank, no control character, no '='; a first letter keeps texts from reading as numbers, lists or constants.
_CHARACTERS = st.characters(exclude_categories=["C"], exclude_characters="= \t\r\n,")
words = st.builds("".join, st.tuples(st.sampled_from("bghxyzé"), st.text(_CHARACTERS, max_size=6)))
names = st.builds("".join, st.tuples(st.sampled_from(["", "/", "layer1.0.", "0."]), words))
keys = st.from_regex(r"[a-z][a-z_0-9]{0,6}", fullmatch=True).filter(lambda key: key != "expr")
sentences = st.lists(words, min_size=1, max_size=3).map(" ".join)

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-300, 300),
    st.floats(),
    st.floats(width=32),
    st.complex_numbers(allow_nan=True, allow_infinity=True),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words)
parameters: st.SearchStrategy[Parameter] = st.one_of(
    scalars, sentences, st.lists(scalars, min_size=1, max_size=5).map(tuple)
)
expressions = st.sampled_from(["add(@0,1)", "[None,@0]", "0", "None", "my key", "", "()", "1.0+2.0j"])
open_shapes: st.SearchStrategy[Shape] = st.lists(st.none() | st.integers(0, 2**31), max_size=5).map(tuple)
codes = st.sampled_from(sorted(DTYPES))


@st.composite
def arrays(draw: st.DrawFn, code: str) -> Array:
    """Any bytes of the code's dtype, in any small shape, zero-sized and without dimensions among them."""
    shape = draw(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    count = int(np.prod(shape, dtype=int))
    if code == "bool":
        return np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_).reshape(shape)
    if code == "c32":
        halves = draw(npst.arrays(np.float16, 2 * count))
        with np.errstate(all="ignore"):
            return halves.astype(np.float32).view(np.complex64).reshape(shape)
    size = count * DTYPES[code].itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8).view(DTYPES[code]).reshape(shape)


@st.composite
def attributes(draw: st.DrawFn) -> Attribute:
    code = draw(codes)
    data = draw(arrays(code))
    return Attribute(data.shape, data.dtype, data, code)


@st.composite
def labels(draw: st.DrawFn, inputs: tuple[str, ...]) -> tuple[str | None, ...]:
    """Labels the text can tell apart: of the inputs of one operand, the first ones are labelled or none is."""
    if len(set(inputs)) < len(inputs):
        return tuple(draw(keys) for _ in inputs)
    return tuple(draw(st.none() | keys) for _ in inputs)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """An input, some operators on whatever was made before them, an output."""
    operator_names = draw(st.lists(names, min_size=3, max_size=6, unique=True))
    operands = draw(st.lists(names, min_size=8, max_size=8, unique=True))
    made = [operands.pop()]
    operators = [Operator("pnnx.Input", operator_names[0], (), tuple(made))]
    for name in operator_names[1:-1]:
        inputs = tuple(draw(st.lists(st.sampled_from(made), max_size=3)))
        outputs = tuple(operands.pop() for _ in range(draw(st.integers(0, 1))))
        made += outputs
        operators.append(_operator(draw, name, inputs, outputs))
    operators.append(Operator("pnnx.Output", operator_names[-1], (draw(st.sampled_from(made)),)))
    return _annotated(draw, operators, made)


def _operator(draw: st.DrawFn, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Operator:
    params: dict[str, Any] = draw(st.dictionaries(keys, parameters, max_size=3))
    if draw(st.booleans()):
        params["expr"] = draw(expressions)
    stored = draw(st.dictionaries(keys.map(lambda key: f"w.{key}"), attributes(), max_size=2))
    return Operator(draw(words), name, inputs, outputs, params, stored, draw(labels(inputs)))


def _annotated(draw: st.DrawFn, operators: list[Operator], made: list[str]) -> Graph:
    graph = Graph(operators)
    for operand in made:
        code = draw(codes | st.sampled_from(["null", "absent"]))
        if code == "null":
            graph.untyped[operand] = draw(open_shapes)
        elif code != "absent":
            graph.annotations[operand] = TensorSpec(draw(open_shapes), DTYPES[code])
        if code == "c32":
            graph.complex32.add(operand)
    return graph
