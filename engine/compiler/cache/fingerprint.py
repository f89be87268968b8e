"""Key of a compiled graph in the cache, derived from all it depends on.

It covers operators, parameters and the bytes of every weight, the shapes of the inputs, options, processor, the sources
of the engine, the versions of LLVM and numpy. Changing any of them gives another key, so no entry is ever stale.
Weights are hashed in full with a cryptographic hash, so two models never share an entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from engine.compiler.cache.version import GENERATOR
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.definition.signature import Signature
from engine.memory.blocks import PIECE_BYTES, side_by_side
from engine.pnnx.graph import Graph, as_bytes
from engine.tensor import Array, TensorSpec


def graph_digest(graph: RuntimeGraph, place_of: Callable[[Array], str | None] = lambda _: None) -> bytes:
    """Return the hash of a built graph, weights included.

    Args:
        place_of: returns the hash of a verified file and the position of an array in it, which stand for the array's
            bytes; None for other arrays.
    """
    state = hashlib.sha256()
    for text in _structure(graph):
        _add(state, text.encode())
    arrays = [each.data for op in graph.operators for each in op.attributes.values()]
    places = [place_of(each) for each in arrays]
    for place in places:
        _add(state, (place or "").encode())
    for digest in _hash_arrays(each for each, place in zip(arrays, places, strict=True) if place is None):
        state.update(digest)
    return state.digest()


def program_key(
    graph: RuntimeGraph, digest: bytes, specs: Sequence[TensorSpec], *options: str, generator: str | None = None
) -> str:
    """Return the key of a graph compiled for inputs of these shapes.

    Args:
        digest: of the graph.
        options: everything else that the code depends on.
        generator: the compiler; None for this engine with the installed LLVM.
    """
    state = hashlib.sha256(digest)
    shapes = repr([_spec(each) for each in specs])
    for text in (generator or GENERATOR, shapes, *options, *_foreign_facts(graph, specs)):
        _add(state, text.encode())
    return state.hexdigest()


def _structure(graph: RuntimeGraph) -> Iterator[str]:
    """Yield everything but the bytes of attributes, in execution order, including the converter's annotations."""
    for op in graph.operators:
        source = op.source
        yield repr((source.type, source.name, source.inputs, source.outputs, source.labels))
        yield repr(list(source.params.items()))
        yield repr([(name, each.shape, each.dtype.name, each.code) for name, each in source.attributes.items()])
        for name, body in source.subgraphs.items():
            yield from _body(name, body)
    signatures = {op.type: op.layer.signature for op in graph.operators if op.layer is not None}
    for signature in signatures.values():
        yield _signature(signature)
    yield repr([(name, _spec(each)) for name, each in graph.source.annotations.items()])
    yield repr((sorted(graph.source.untyped.items()), sorted(graph.source.complex32)))
    yield repr([[(port.name, port.operand) for port in ports] for ports in (graph.inputs, graph.outputs)])


def _body(name: str, body: Graph) -> Iterator[str]:
    """Yield the facts of a subgraph of an operator, with its weights."""
    yield repr((name, sorted((operand, _spec(each)) for operand, each in body.annotations.items())))
    for op in body.operators:
        yield repr((op.type, op.name, op.inputs, op.outputs, op.labels, list(op.params.items())))
        for key, each in op.attributes.items():
            yield repr((key, each.shape, each.dtype.name, _hash([as_bytes(each.data)]).hex()))
        for inner, deeper in op.subgraphs.items():
            yield from _body(inner, deeper)


def _signature(signature: Signature) -> str:
    """Return how a type is registered: users may register this package's layers under types of their own."""
    layer = signature.layer
    tables = (signature.presets, signature.flags, signature.shapes, signature.renamed)
    return repr(
        (
            (signature.type, layer.__module__, layer.__qualname__, signature.positional, sorted(signature.ignored)),
            [sorted(table.items()) for table in tables],
        )
    )


def _foreign_facts(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> Iterator[str]:
    """Yield the inferred outputs of layers from outside this package, whose sources are not hashed."""
    foreign = [op for op in graph.operators if _is_foreign(op)]
    values = graph.infer(specs) if foreign and len(specs) == len(graph.inputs) else {}
    for op in foreign:
        yield repr([(operand.name, values.get(operand.name)) for operand in op.outputs])


def _is_foreign(op: RuntimeOperator) -> bool:
    return op.layer is not None and not type(op.definition).__module__.startswith("engine.")


def _spec(spec: TensorSpec) -> tuple[object, str]:
    return tuple(spec.shape), spec.dtype.name


def _hash_arrays(arrays: Iterable[Array]) -> Iterator[bytes]:
    """Yield hashes of pieces of the arrays' bytes, in order; several threads hash large amounts.

    Array boundaries are not included: shapes and dtypes define them.
    """
    return side_by_side(_hash, _pieces(arrays))


def _pieces(arrays: Iterable[Array]) -> list[list[Array]]:
    """Split arrays into pieces of work for one thread: parts of large arrays, or groups of small ones."""
    pieces: list[list[Array]] = []
    room = 0
    for content in map(as_bytes, arrays):
        at = 0
        while at < content.size:
            if room == 0:
                pieces.append([])
                room = PIECE_BYTES
            pieces[-1].append(content[at : at + room])
            at, room = at + pieces[-1][-1].size, room - pieces[-1][-1].size
    return pieces


def _hash(piece: Iterable[Array]) -> bytes:
    state = hashlib.sha256()
    for each in piece:
        state.update(each.data)
    return state.digest()


def _add(state: hashlib._Hash, content: bytes) -> None:
    """Hash a value with its length, so that different sequences of values never give the same bytes."""
    state.update(len(content).to_bytes(8, "little"))
    state.update(content)
