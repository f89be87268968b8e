"""Serialization of a graph's templates for the cache: one entry for all of them, with their weights once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.compiler.cache.entry import Content, EntryError
from engine.compiler.cache.facts import from_facts, to_facts
from engine.compiler.dynamic.template import Template
from engine.compiler.runtime.memory import aligned_bytes
from engine.compiler.storage import ALIGNMENT
from engine.errors import ParameterError
from engine.graph.symbolic_inputs import SizesOf
from engine.ir.atoms import Atom
from engine.ir.dims import ShapeEnv
from engine.ir.polynomials import Terms
from engine.ir.tables import Table
from engine.tensor import Array

_OPERATIONS = frozenset({"size", "//", "%", "max", "min"})


def content_of(restored: Sequence[Template], made: Sequence[Template]) -> Content:
    """Return the cache entry of templates.

    Args:
        restored: templates from the cache; those that one process made share their weights.
        made: templates of this process; the last has the weights of all.
    """
    templates = [*restored, *made]
    executables = [template.executable for template in templates]
    code = tuple(dict.fromkeys(each for executable in executables for each in executable.code))
    places = {each: number for number, each in enumerate(code)}
    weights = [each.executable.weights for each in restored] + [made[-1].executable.weights for _ in made]
    shared = {_place(each): each for each in weights}
    blocks = [*(executable.constants for executable in executables), *shared.values()]
    starts = [0]
    for block in blocks:
        starts.append(-(-(starts[-1] + block.nbytes) // ALIGNMENT) * ALIGNMENT)
    constants = aligned_bytes(starts[-1])
    for begin, block in zip(starts, blocks, strict=False):
        constants[begin : begin + block.nbytes] = block
    begins = dict(zip(shared, starts[len(templates) :], strict=False))
    facts = [
        {
            **_facts(template),
            "constants": [begin, template.executable.constants.nbytes],
            "weights": [begins[_place(block)], block.nbytes],
            "parts": [places[each] for each in template.executable.code],
        }
        for begin, template, block in zip(starts, templates, weights, strict=False)
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


def _place(block: Array) -> tuple[int, int]:
    """Return the address and the size of a block."""
    return block.ctypes.data, block.nbytes


def _facts(template: Template) -> dict[str, Any]:
    env = template.env
    return {
        **to_facts(template.executable),
        "names": env.names,
        "atoms": [[each.operation, each.name, each.left, each.right] for each in env.atoms],
        "guards": [[relation, terms, found] for (relation, terms), found in env.guards.items()],
        "inputs": template.sizes.described(),
        "values": template.table.polynomials,
        "checks": list(template.checks),
        "elements": template.elements,
    }


def _template(facts: Mapping[str, Any], content: Content) -> Template:
    env = ShapeEnv()
    env.names = list(map(str, facts["names"]))
    env.atoms = [_atom(*each) for each in facts["atoms"]]
    env.guards = {(_relation(relation), _terms(terms)): bool(found) for relation, terms, found in facts["guards"]}
    code = tuple(content.code[number] for number in facts["parts"])
    constants, weights = (_part(content.constants, *facts[name]) for name in ("constants", "weights"))
    return Template(
        env=env,
        sizes=SizesOf.like(facts["inputs"], len(env.names)),
        table=Table(env, [_terms(each) for each in facts["values"]]),
        executable=from_facts(facts, code, constants, weights),
        checks=list(map(int, facts["checks"])),
        elements=max(1, int(facts["elements"])),
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
