"""Write docs/core-operators.md: each core operator, its rules, its aliases and the ONNX operators made of it.

    python docs/generate_core_operators.py

A test fails when the page is not what this script would write. Rules that no docstring states are observed: they are
the simplest that hold in all recorded samples of tests/data/layers.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine
from docs.generate_operators import compiled_layer, prose, table_line
from engine.errors import EngineError
from engine.layers import Layer
from engine.layers.creation.container import Expression
from engine.layers.definition.composite import Composite
from engine.layers.definition.overload import Overloaded, unfolded
from engine.layers.elementwise.base import Elementwise, UnaryFunction
from engine.layers.elementwise.functions import Binary, Unary
from engine.layers.reduction.reduction import Reduction
from engine.onnx.translation import registry as onnx
from engine.promotion import broadcast_shapes, float_dtype, promote_types
from engine.tensor import TensorSpec, dtype_name, product
from tests.engine.layers.samples import all_samples

PAGE: Final = Path(__file__).with_name("core-operators.md")
_HEAD: Final = """# Core operators

PNNX files contain the same operator under several names. The engine has {cores} core operators. Each is defined by one
layer, with a numpy implementation, a shape rule and a dtype rule. The other {aliases} names on the page of
[operators](operators.md) are aliases with another order or other names of arguments (`engine/layers/aliases.py`).
{composites} more operators are composed of core operators (`engine/layers/definition/composite.py`), and are compiled
as those. Reading a file does not change its names. The page is written by `python docs/generate_core_operators.py`, do
not edit it.

| column | meaning |
|---|---|
| shape, dtype | those of the (first) result |
| | *as input*: those of the first operand; *broadcast*: of all operands, by numpy's rules |
| | *promoted*: the common dtype; *float*: the common dtype, but float32 for integers; *by parameters*: see the layer |
| ONNX | ONNX operators that are translated to it, without those of `com.microsoft` |
| compiled | as on the page of [operators](operators.md) |
"""
_COLUMNS: Final = ("operator", "aliases", "shape", "dtype", "ONNX", "compiled")
_DECOMPOSED: Final = """## Decomposed

| operator | aliases | composed of | ONNX |
| --- | --- | --- | --- |
"""
_FROM_ONNX: Final = """## From ONNX

Types that are named in the translation of an operator. Types whose names it computes are missing; so are operators
that are kept as layers of ONNX.

| ONNX | written in |
| --- | --- |
"""
_BY_PARAMETERS: Final = "by parameters"
_OWN: Final = "engine.layers."
# Largest table of layers of which a decomposition may use each.
_SMALL: Final = 6
_Observation = tuple[list[TensorSpec], TensorSpec]


def render() -> str:
    """Return the whole page."""
    names = _names()
    cores = {layer: types for layer, types in names.items() if not issubclass(layer, Composite)}
    composites = {layer: types for layer, types in names.items() if issubclass(layer, Composite)}
    made, seen = _made_of_onnx(), _observations()
    head = _HEAD.format(
        cores=len(cores), composites=len(composites), aliases=sum(len(each) - 1 for each in names.values())
    )
    lines = [head]
    families: dict[str, list[type[Layer]]] = {}
    for layer in sorted(cores, key=lambda each: each.__module__):
        families.setdefault(layer.__module__.split(".")[2], []).append(layer)
    for family, layers in families.items():
        lines += [f"## {family.capitalize()}\n", table_line(_COLUMNS), table_line(["---"] * len(_COLUMNS))]
        for layer in layers:
            first, *others = cores[layer]
            shape, dtype = _rules(layer, seen.get(layer, []))
            cells = [_code([first]), _code(others), shape, dtype, _code(made.get(layer, [])), compiled_layer(layer)]
            lines.append(table_line(cells))
        lines.append("")
    lines += [_FROM_ONNX.rstrip()]
    for name in sorted(onnx.known_types()):
        if types := list(_types_in(_translator(name))):
            lines.append(table_line([_code([name]), _code(types)]))
    lines += ["", _DECOMPOSED.rstrip()]
    for layer, (first, *others) in composites.items():
        parts = [names[each][0] for each in _layers_in(layer.compose, layer) if each in names]
        lines.append(table_line([_code([first]), _code(others), _code(parts), _code(made.get(layer, []))]))
    return "\n".join([*lines, ""])


def _names() -> dict[type[Layer], list[str]]:
    """Return the types of each layer of PNNX and PyTorch, the core operator's own first."""
    found: dict[type[Layer], list[str]] = {}
    for type in engine.registry:
        layer = engine.registry[type].layer
        layers = layer.canonical_layers if issubclass(layer, Overloaded) else (layer,)
        for each in layers:
            if each.__module__.startswith(_OWN) and not each.__module__.startswith(f"{_OWN}onnx."):
                found.setdefault(each, []).append(type)
    return found


def _code(names: Sequence[str]) -> str:
    return " ".join(f"`{name}`" for name in dict.fromkeys(names))


def _rules(layer: type[Layer], observed: Sequence[_Observation]) -> tuple[str, str]:
    """Return the shape rule and the dtype rule: as the docstring says, as its base has it, or as observed."""
    stated = [_stated(layer, section) for section in ("Shapes", "Dtypes")]
    if issubclass(layer, Elementwise | UnaryFunction | Unary):
        rules = ["as input", "as input" if issubclass(layer, Elementwise) else _rule(_DTYPES, observed)]
    elif issubclass(layer, Binary | Expression):
        rules = ["broadcast", _rule(_DTYPES, observed)]
    elif issubclass(layer, Reduction):
        rules = ["without `dim`, or 1 there", _rule(_DTYPES, observed)]
    else:
        rules = [_rule(_SHAPES, observed), _rule(_DTYPES, observed)]
    shape, dtype = (own or rule for own, rule in zip(stated, rules, strict=True))
    return shape, dtype


def _stated(layer: type[Layer], section: str) -> str | None:
    """Return a section of a layer's docstring as one line."""
    text = inspect.cleandoc(layer.__doc__ or "")
    found = re.search(rf"^{section}:\n((?:    .*\n?)+)", text, re.MULTILINE)
    return None if found is None else prose(" ".join(found.group(1).split()))


def _of_all(function: Callable[[Any, Any], Any]) -> Callable[[list[TensorSpec]], Any]:
    return lambda specs: reduce(function, [each.dtype for each in specs])


_SHAPES: Final[Mapping[str, Callable[[list[TensorSpec], TensorSpec], bool]]] = {
    "as input": lambda given, result: result.shape == given[0].shape,
    "broadcast": lambda given, result: result.shape == broadcast_shapes(*(each.shape for each in given)),
    "permuted": lambda given, result: sorted(result.sizes) == sorted(given[0].sizes),
    "the elements in another shape": lambda given, result: product(result.shape) == product(given[0].shape),
}
_PROMOTED: Final = _of_all(promote_types)
_DTYPES: Final[Mapping[str, Callable[[list[TensorSpec], TensorSpec], bool]]] = {
    "as input": lambda given, result: result.dtype == given[0].dtype,
    "promoted": lambda given, result: result.dtype == _PROMOTED(given),
    "float": lambda given, result: result.dtype == float_dtype(_PROMOTED(given)),
    "bool": lambda _, result: dtype_name(result.dtype) == "bool",
    "int64": lambda _, result: dtype_name(result.dtype) == "int64",
    "complex": lambda _, result: result.dtype.kind == "c",
}


def _rule(rules: Mapping[str, Callable[[list[TensorSpec], TensorSpec], bool]], observed: Sequence[_Observation]) -> str:
    """Return the first rule that holds in all observations."""
    for name, holds in rules.items():
        if observed and all(given and _holds(holds, given, result) for given, result in observed):
            return name
    return _BY_PARAMETERS


def _holds(rule: Callable[[list[TensorSpec], TensorSpec], bool], given: list[TensorSpec], result: TensorSpec) -> bool:
    try:
        return rule(given, result)
    except EngineError:
        return False


def _observations() -> dict[type[Layer], list[_Observation]]:
    """Return operands and first result of each layer in all recorded samples."""
    found: dict[type[Layer], list[_Observation]] = defaultdict(list)
    for sample in all_samples():
        with tempfile.TemporaryDirectory() as folder:
            graph = engine.load(*sample.extract(Path(folder)))
        for op in graph.operators:
            value = op.outputs[0].value if op.outputs else None
            value = value[0] if isinstance(value, tuple | list) and value else value
            if op.layer is None or not isinstance(value, TensorSpec) or not value.is_static:
                continue
            bound = unfolded(op.layer)
            given = [source.spec([each.value for each in op.inputs]) for source in bound.positional]
            given = [spec for each in given for spec in (each if isinstance(each, list | tuple) else [each])]
            specs = [each for each in given if isinstance(each, TensorSpec)]
            if all(each.is_static for each in specs):
                found[type(bound.layer)].append((specs, value))
    return found


def _made_of_onnx() -> dict[type[Layer], list[str]]:
    """Return the ONNX operators in whose translation each layer's types are named."""
    found: dict[type[Layer], list[str]] = defaultdict(list)
    for name in onnx.known_types():
        for type in _types_in(_translator(name)):
            layer = engine.registry[type].layer
            if name not in found[layer]:
                found[layer].append(name)
    return found


def _translator(name: str) -> FunctionType:
    """Return the translator of the newest operator set."""
    found: Any = onnx.translator_of("", name, 1 << 30)
    return found


def _types_in(function: FunctionType) -> Iterator[str]:
    """Yield the types that a translator names, itself or through other functions and tables of translators."""
    for text in _strings_in(function, set()):
        for name in (text, f"{text}2d"):
            if name in engine.registry and not name.isidentifier():
                yield name
                break


def _strings_in(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from _strings_in(each, seen)
    elif isinstance(value, dict):
        yield from _strings_in(list(value.values()), seen)
    elif isinstance(value, CodeType):
        yield from _strings_in(value.co_consts, seen)
        if "expression" in value.co_names:
            yield "pnnx.Expression"
    elif isinstance(value, FunctionType) and id(value) not in seen:
        seen.add(id(value))
        if value.__module__.startswith("engine.onnx.translators"):
            yield from _strings_in(value.__code__, seen)
            for name in value.__code__.co_names:
                yield from _strings_in(value.__globals__.get(name), seen)


def _layers_in(function: Any, owner: type[Layer], seen: set[Any] | None = None) -> list[type[Layer]]:
    """Return the layers that a decomposition names, itself or through methods and functions of its module."""
    seen = set() if seen is None else seen
    found: list[type[Layer]] = []
    codes = [function.__code__, *(each for each in function.__code__.co_consts if isinstance(each, CodeType))]
    for name in dict.fromkeys(name for code in codes for name in code.co_names):
        value = function.__globals__.get(name, getattr(owner, name, None))
        value = value.fget if isinstance(value, property) else value
        if name == "formula":
            found.append(Expression)
        elif isinstance(value, type) and issubclass(value, Layer):
            found.append(value)
        elif isinstance(value, dict) and len(value) <= _SMALL:
            found += [each for each in value.values() if isinstance(each, type) and issubclass(each, Layer)]
        elif isinstance(value, FunctionType) and value.__module__ == owner.__module__ and value not in seen:
            seen.add(value)
            found += _layers_in(value, owner, seen)
    return found


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
