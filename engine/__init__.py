"""The engine: PNNX models as graphs you can run and look into, without torch.

    graph = engine.load("resnet18.pnnx.param", "resnet18.pnnx.bin")
    outputs = engine.Session(graph).run([x])

Everything a program needs is named here; the rooms below are the engine's own. In the order a model takes: pnnx (the
pair) -> graph, with layers and expression (what operators mean) -> session -> executor -> passes, compiler.
"""

from __future__ import annotations

import os

from engine.bundle import is_bundle, open_bundle
from engine.check import check
from engine.comparison import ComparedValue, Comparison, Difference, NonFiniteBirth, compare
from engine.comparison import measure as measure_difference
from engine.errors import (
    BundleError,
    CompileError,
    EngineError,
    ExecutionError,
    ExpressionError,
    GraphError,
    InputError,
    ModelFormatError,
    ParameterError,
    ParamSyntaxError,
    RunCancelledError,
    ShapeError,
    UnsupportedOperatorError,
    WeightsError,
)
from engine.explanation import explain
from engine.figures import CompileFigures, compile_figures
from engine.graph import (
    GraphState,
    Mismatch,
    Port,
    RuntimeGraph,
    RuntimeOperand,
    RuntimeOperator,
    SuspectedLoss,
)
from engine.layers import Annotations, Layer, Registry, register, registry
from engine.limits import asking_for_room
from engine.memory.files import read_file
from engine.memory.resources import free_memory_bytes, total_memory_bytes
from engine.memory.sharing import Exchange, share_memory
from engine.onnx import is_onnx
from engine.options import PASS_NAMES, Options
from engine.pnnx.sniffing import kind_of_file
from engine.progress import Progress
from engine.session import Outputs, Session
from engine.stopping import cancelling
from engine.tensor import TensorSpec, is_close
from engine.toolchain import admit, describe_host, in_background, measure_peak

__all__ = [
    "PASS_NAMES",
    "Annotations",
    "BundleError",
    "ComparedValue",
    "Comparison",
    "CompileError",
    "CompileFigures",
    "Difference",
    "Exchange",
    "EngineError",
    "ExecutionError",
    "ExpressionError",
    "GraphError",
    "GraphState",
    "InputError",
    "Layer",
    "Mismatch",
    "ModelFormatError",
    "NonFiniteBirth",
    "Options",
    "Outputs",
    "ParamSyntaxError",
    "ParameterError",
    "Port",
    "Progress",
    "Registry",
    "RunCancelledError",
    "RuntimeGraph",
    "RuntimeOperand",
    "RuntimeOperator",
    "Session",
    "ShapeError",
    "SuspectedLoss",
    "TensorSpec",
    "UnsupportedOperatorError",
    "WeightsError",
    "cancelling",
    "asking_for_room",
    "check",
    "compare",
    "compile_figures",
    "describe_host",
    "explain",
    "free_memory_bytes",
    "in_background",
    "is_bundle",
    "is_close",
    "is_onnx",
    "kind_of_file",
    "load",
    "measure_difference",
    "measure_peak",
    "read_file",
    "register",
    "registry",
    "share_memory",
    "total_memory_bytes",
]


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
        strict: refuse a graph that would have warnings: shapes or dtypes that contradict the file's, suspected losses.
        verify: check the CRC-32 of all weights.

    Raises:
        BundleError: the bundle is damaged or altered, not to be trusted, or for another machine or engine.
        EngineError: the pair is damaged, uses unknown operators or contradicts itself.
    """
    if bin is None and is_bundle(param):
        graph = RuntimeGraph.from_bundle(open_bundle(param, admit))
    else:
        graph = RuntimeGraph(param, bin)
        graph.init(verify=verify)
    graph.build(strict=strict)
    return graph
