"""Models read from their files: a pair, an ONNX file or a bundle."""

from __future__ import annotations

import os

from engine.bundle import is_bundle, open_bundle
from engine.graph import RuntimeGraph
from engine.layers import Registry, registry
from engine.toolchain import admit


def load(
    param: str | os.PathLike[str],
    bin: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    verify: bool = False,
) -> RuntimeGraph:
    """Read a PNNX pair or an ONNX file and build its graph: RuntimeGraph, init(), build(). Or read a bundle.

    Args:
        param: path of the ``.pnnx.param`` file, or of an ``.onnx`` file (extra ``onnx``); or of the folder of a bundle,
            whose every file is held against its manifest, and whose code is run: see docs/security.md.
        bin: path of the ``.pnnx.bin`` file; by default the one beside ``param``. Its weights are taken as they
            are at this time: what is done to the file later changes nothing.
        strict: refuse a graph that would have warnings: contradictions of the file's shapes, suspected export errors.
        verify: check the CRC-32 of all weights.

    Raises:
        BundleError: the bundle is damaged or altered, not to be trusted, or for another machine or engine.
        EngineError: the pair is damaged, uses unknown operators or contradicts itself.
    """
    graph = read(param, bin, verify=verify)
    graph.build(strict=strict)
    return graph


def read(
    param: str | os.PathLike[str],
    bin: str | os.PathLike[str] | None = None,
    *,
    verify: bool = False,
    registry: Registry = registry,
) -> RuntimeGraph:
    """Read the files of a model; the graph still needs build(). Arguments and errors are those of load()."""
    if bin is None and is_bundle(param):
        return RuntimeGraph.from_bundle(open_bundle(param, admit), registry=registry)
    graph = RuntimeGraph(param, bin, registry=registry)
    graph.init(verify=verify)
    return graph
