"""Write docs/operators.md from the registry: every operator type, the layer that computes it, how it is compiled.

    python docs/generate_operators.py

A test fails when the page is not what this script would write.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine
from docs.operators_without_kernel import reason
from engine.compiler.lowering.rules.movement import copies, views
from engine.compiler.lowering.rules.registry import KERNEL_RULES
from engine.compiler.lowering.terms.term import EXPRESSION_RULES
from engine.layers.creation.container import Constant
from engine.layers.definition.composite import Composite
from engine.layers.definition.hints import describe as describe_hint
from engine.layers.definition.layer import Layer
from engine.layers.definition.signature import REQUIRED, Signature

PAGE: Final = Path(__file__).with_name("operators.md")
_LAYERS: Final = "engine.layers."
_HEAD: Final = """# Operators

This page lists the {types} operator types that the engine supports, by family. They are defined by {layers} layers
(classes with a numpy implementation). If a type is missing, define a [custom operator](custom-operators.md). The page
is written by `python docs/generate_operators.py`, do not edit it.

| column | meaning |
|---|---|
| type | operator types in the model file; types in one row are equivalent |
| core | the [core operator](core-operators.md), if several types are names of the same operator |
| operands | inputs; an operand with `= value` may be omitted |
| parameters | with type and default; *fixed* parameters belong to the type, *not needed* ones are ignored |
| attributes | stored tensors; *if* names the parameter that tells whether the tensor is stored |
| reference | ✔: the numpy implementation is tested against recorded results of PyTorch |
| compiled | how the [compiler](compiler.md) computes the operator in float32, see below |

Any operand may also be stored as an attribute (`@weight`) or be a number in the file (`other=2`), and any parameter
may be an operand (`$dim=7`). Types that begin with `aten::` have the arguments of PyTorch's schema, in its order.

| compiled | meaning |
|---|---|
| kernel | it has a separate kernel |
| map | element-wise: fused into the kernel that produces its operand, or into a kernel with other such operators |
| view | no computation if strides can describe the result, otherwise a copy |
| constant | computed before the run |
| decomposed | replaced by other operators, which are compiled |
| – | numpy computes it between kernels, for the reason below the table |

The compiler may not support some parameters of an operator; `GET /graph` shows the reason for a given model.
Operators that depend only on constants are computed before the run.
"""
_ONNX: Final = "onnx."
_ONNX_HEAD: Final = """# ONNX

The following sections list ONNX operators that keep their ONNX name when pnnx converts an ONNX model: operators without
an equivalent in PyTorch, and forms that pnnx does not recognise. They have the inputs of ONNX in the same order, and
the attributes of ONNX as parameters. An attribute that later became an input may be either. If optional inputs or
outputs are omitted, the others are identified by rank, dtype and the shapes in the file. The numpy implementations are
tested against the tests of the ONNX standard and against onnxruntime. Not supported in files written by pnnx, because
[it loses their content](exporting.md#from-onnx): `Loop`, `Scan`, `SequenceMap`, `If` without a constant condition,
scalar constants other than float32, int32, int64 and bool, and operators of other domains (`custom_op.*`).
"""
_TITLES: Final = ("type", "computes", "core", "operands", "parameters", "attributes", "reference", "compiled")


def render() -> str:
    """The whole page."""
    # Types of the engine's own never stand in a file: the compiler makes them.
    signatures = [engine.registry[type] for type in engine.registry if not type.startswith("engine.")]
    ours = [each for each in signatures if each.layer.__module__.startswith(_LAYERS)]
    head = _HEAD.format(types=len(ours), layers=len({each.layer for each in ours}))
    families: dict[str, list[Signature]] = {}
    for each in ours:
        families.setdefault(_family(each), []).append(each)
    sections = {name: _section(name, families[name]) for name in sorted(families)}
    torch = [text for name, text in sections.items() if not name.startswith(_LAYERS + _ONNX)]
    onnx = [text for name, text in sections.items() if name.startswith(_LAYERS + _ONNX)]
    return "\n".join([head, *torch, _ONNX_HEAD, *onnx])


def _family(signature: Signature) -> str:
    """The module a type is listed under."""
    return signature.layer.__module__


def _section(module: str, signatures: list[Signature]) -> str:
    summary = (importlib.import_module(module).__doc__ or "").strip().split("\n\n")[0]
    title = module.rpartition(".")[2].replace("_", " ").capitalize()
    title = f"ONNX: {title.lower()}" if module.startswith(_LAYERS + _ONNX) else title
    lines = [f"## {title}", "", prose(summary), "", table_line(_TITLES), table_line(["---"] * len(_TITLES))]
    rows = [*_rows(signatures)]
    if any(row[-1] == "–" for row in rows):
        return "\n".join([*lines, *map(table_line, rows), "", f"–: {reason(module)}.", ""])
    return "\n".join([*lines, *map(table_line, rows), ""])


def _rows(signatures: list[Signature]) -> Iterator[list[str]]:
    """Types that are written the same way share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for each in signatures:
        rows.setdefault(_cells(each), []).append(f"`{each.type}`")
    for cells, types in rows.items():
        yield [" ".join(types), *cells]


def _cells(signature: Signature) -> tuple[str, ...]:
    arguments = _operands(signature), _parameters(signature), _attributes(signature)
    return prose(signature.summary), _core(signature.layer), *arguments, "✔", compiled_as(signature)


def _core(layer: type[Layer]) -> str:
    """The core operator of a layer with several types, which is registered first."""
    types = [type for type in engine.registry if engine.registry[type].layer is layer]
    return f"`{types[0]}`" if len(types) > 1 else ""


def compiled_as(signature: Signature) -> str:
    """Return how the compiler computes a type: by the rules of its layer's class."""
    found = [compiled_layer(layer) for layer in (signature.layer, *signature.layer.canonical_layers)]
    return next((kind for kind in found if kind != "–"), "–")


def compiled_layer(layer: type[Layer]) -> str:
    """Return how the compiler computes a layer."""
    if issubclass(layer, Constant):
        return "constant"
    if layer in KERNEL_RULES and layer not in EXPRESSION_RULES:
        return "view" if KERNEL_RULES[layer] in (views.lower_view, copies.lower_part) else "kernel"
    if issubclass(layer, Composite):
        return "decomposed"
    return "map" if layer in EXPRESSION_RULES else "–"


def _operands(signature: Signature) -> str:
    named = [_named(name, "", default) for name, default in signature.operands.items()]
    return ", ".join([*named, *(["any number"] if signature.is_variadic else [])])


def _parameters(signature: Signature) -> str:
    fields = {each.name: each for each in dataclasses.fields(signature.layer)}
    free = [
        _named(name, f" {describe_hint(kind)}", _default(fields[name]))
        for name, kind in signature.fields.items()
        if name not in signature.presets
    ]
    fixed = [_named(name, "", value) for name, value in signature.presets.items()]
    ignored = [f"`{name}`" for name in sorted(signature.ignored)]
    groups = {"": free, "fixed: ": fixed, "not needed: ": ignored}
    return "; ".join(title + ", ".join(names) for title, names in groups.items() if names)


def _attributes(signature: Signature) -> str:
    announced = [f"{_ats(names)} if `{flag}`" for flag, names in signature.flags.items()]
    return ", ".join([*announced, *(["of any name"] if signature.takes_any_attribute else [])])


def _ats(names: Any) -> str:
    return " ".join(f"`@{name}`" for name in names)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED if field.default is dataclasses.MISSING else field.default


def _named(name: str, kind: str, default: Any) -> str:
    value = "" if default is REQUIRED else f" = {_value(default)}"
    return f"`{name}`{kind}{value}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{...}"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def prose(text: str) -> str:
    """A docstring's text for a table: code spans as they are, everything else without meaning to Markdown."""
    spans = re.split(r"``(.+?)``", " ".join(text.split()))
    parts = [f"`{span}`" if index % 2 else re.sub(r"([*_<\[\]`~])", r"\\\1", span) for index, span in enumerate(spans)]
    return "".join(parts)


def table_line(cells: Any) -> str:
    """A row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
