"""Serialization of a graph's templates for the cache: one entry for all of them, with their weights once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.compiler.cache.entry import Content, EntryError
from engine.compiler.dynamic.template import SymbolicCall, SymbolicRegion, SymbolicSteps, Template
from engine.compiler.runtime.memory import aligned_bytes
from engine.compiler.storage import ALIGNMENT
from engine.errors import ParameterError
from engine.graph.symbolic_inputs import SizesOf
from engine.ir.dims import Atom, ShapeEnv, Terms
from engine.ir.tables import Table
from engine.passes import PassReport
from engine.tensor import Array

_COLUMNS = ("chunks", "flops", "bytes", "offsets", "blocks")
_OPERATIONS = frozenset({"size", "//", "%", "max", "min"})


def content_of(restored: Sequence[Template], made: Sequence[Template]) -> Content:
    """Return the cache entry of templates.

    Args:
        restored: templates from the cache, which share their weights.
        made: templates of this process; the last has the weights of all.
    """
    templates = [*restored, *made]
    code = tuple(dict.fromkeys(each for template in templates for each in template.code))
    places = {each: number for number, each in enumerate(code)}
    weights = [part[-1].weights for part in (restored, made) if part]
    blocks = [*(template.constants for template in templates), *weights]
    starts = [0]
    for block in blocks:
        starts.append(-(-(starts[-1] + block.nbytes) // ALIGNMENT) * ALIGNMENT)
    constants = aligned_bytes(starts[-1])
    for begin, block in zip(starts, blocks, strict=False):
        constants[begin : begin + block.nbytes] = block
    places_of_weights = [[begin, block.nbytes] for begin, block in zip(starts[len(templates) :], weights, strict=False)]
    facts = [
        {
            **_facts(template),
            "constants": [begin, template.constants.nbytes],
            "weights": places_of_weights[0 if number < len(restored) else -1],
            "parts": [places[each] for each in template.code],
        }
        for number, (begin, template) in enumerate(zip(starts, templates, strict=False))
    ]
    return Content({"code": [len(each) for each in code], "templates": facts}, code, constants)


def templates_of(content: Content) -> list[Template]:
    """Return the templates that a cache entry holds.

    Raises:
        EntryError: its facts cannot be decoded.
    """
    try:
        return [_template(each, content) for each in content.facts["templates"]]
    except (KeyError, TypeError, ValueError, IndexError, ParameterError, SyntaxError) as error:
        raise EntryError(f"its facts cannot be decoded: {type(error).__name__}: {error}") from None


def _facts(template: Template) -> dict[str, Any]:
    env, steps = template.env, template.steps
    return {
        "names": env.names,
        "atoms": [[each.operation, each.name, each.left, each.right] for each in env.atoms],
        "guards": [[relation, terms, found] for (relation, terms), found in env.guards.items()],
        "inputs": template.sizes.described(),
        "values": template.table.polynomials,
        "steps": {
            **{name: getattr(steps, name).tolist() for name in (*_COLUMNS, "is_dealt", "ends")},
            "functions": steps.functions,
            "kinds": steps.kinds,
            "operators": steps.operators,
        },
        "segments": [[first, last, _call_facts(call)] for first, last, call in template.segments],
        "arena_bytes": template.arena_bytes,
        "fault_flag": template.fault_flag,
        "tables_at": template.tables_at,
        "clean": template.clean,
        "outputs": [each if isinstance(each, str) else _region_facts(each) for each in template.outputs],
        "buffers": template.buffers,
        "reasons": dict(template.reasons),
        "operators": template.operators,
        "passes": [each.describe() for each in template.passes],
    }


def _template(facts: Mapping[str, Any], content: Content) -> Template:
    env = ShapeEnv()
    env.names = list(map(str, facts["names"]))
    env.atoms = [_atom(*each) for each in facts["atoms"]]
    env.guards = {(_relation(relation), _terms(terms)): bool(found) for relation, terms, found in facts["guards"]}
    steps = facts["steps"]
    return Template(
        env=env,
        sizes=SizesOf.like(facts["inputs"], len(env.names)),
        table=Table(env, [_terms(each) for each in facts["values"]]),
        code=tuple(content.code[number] for number in facts["parts"]),
        constants=_part(content.constants, *facts["constants"]),
        weights=_part(content.constants, *facts["weights"]),
        tables_at=facts["tables_at"],
        steps=SymbolicSteps(
            **{name: np.array(steps[name], np.int64) for name in _COLUMNS},
            functions=tuple(steps["functions"]),
            kinds=tuple(steps["kinds"]),
            operators=tuple(steps["operators"]),
            is_dealt=np.array(steps["is_dealt"], bool),
            ends=np.array(steps["ends"], np.int32).reshape(-1, 2),
        ),
        segments=tuple((first, last, _call(call)) for first, last, call in facts["segments"]),
        arena_bytes=facts["arena_bytes"],
        fault_flag=facts["fault_flag"],
        clean=tuple((first, last) for first, last in facts["clean"]),
        outputs=tuple(each if isinstance(each, str) else _region(each) for each in facts["outputs"]),
        buffers=tuple((at, size, first, last, tuple(names)) for at, size, first, last, names in facts["buffers"]),
        reasons=dict(facts["reasons"]),
        operators=tuple(facts["operators"]),
        passes=tuple(PassReport(**{**each, "changed": tuple(each["changed"])}) for each in facts["passes"]),
    )


def _part(block: Array, begin: int, size: int) -> Array:
    if not 0 <= begin <= begin + size <= block.nbytes:
        raise ValueError("constants beyond the end")
    return block[begin : begin + size]


def _atom(operation: str, name: str, left: Any, right: Any) -> Atom:
    if operation not in _OPERATIONS:
        raise ValueError(f"unknown operation on sizes: {operation!r}")
    return Atom(operation, name, _terms(left), _terms(right), 0, (None, None))


def _relation(text: str) -> str:
    if text not in ("== 0", ">= 0"):
        raise ValueError(f"unknown relation of sizes: {text!r}")
    return text


def _terms(rows: Any) -> Terms:
    return tuple((tuple(map(int, product)), int(factor)) for product, factor in rows)


def _call_facts(call: SymbolicCall | None) -> list[Any] | None:
    if call is None:
        return None
    inputs, outputs = (
        [None if each is None else _region_facts(each) for each in regions] for regions in (call.inputs, call.outputs)
    )
    return [call.operator, inputs, outputs]


def _call(facts: Any) -> SymbolicCall | None:
    if facts is None:
        return None
    operator, inputs, outputs = facts
    inside, outside = (tuple(None if each is None else _region(each) for each in rows) for rows in (inputs, outputs))
    return SymbolicCall(operator=operator, inputs=inside, outputs=outside)


def _region_facts(region: SymbolicRegion) -> list[Any]:
    return [region.block, region.offset, region.shape, region.strides, region.dtype]


def _region(facts: Any) -> SymbolicRegion:
    block, offset, shape, strides, dtype = facts
    return SymbolicRegion(block=block, offset=offset, shape=tuple(shape), strides=tuple(strides), dtype=dtype)
