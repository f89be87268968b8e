"""The engine: PNNX models as graphs you can run and look into, without torch.

    graph = engine.load("resnet18.pnnx.param", "resnet18.pnnx.bin")
    outputs = engine.Session(graph).run([x])

The public names are here; the packages below are internal. In the order a model passes them: pnnx (the file pair) ->
graph, with layers and expression (the semantics of operators) -> session -> executor -> passes, compiler.
"""

from __future__ import annotations

from engine.bundle import is_bundle
from engine.cancellation import Progress, cancelling
from engine.comparison import ComparedValue, Comparison, Difference, NonFiniteOrigin, compare
from engine.comparison import measure as measure_difference
from engine.compile_metrics import CompileMetrics, compile_metrics
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
from engine.graph import (
    ExportFinding,
    GraphState,
    Mismatch,
    Port,
    RuntimeGraph,
    RuntimeOperand,
    RuntimeOperator,
)
from engine.layers import Annotations, Layer, Registry, register, registry
from engine.limits import asking_for_room
from engine.loading import check, compose, load
from engine.memory.files import read_file
from engine.memory.resources import free_memory_bytes, total_memory_bytes
from engine.memory.shared_blocks import SharedBlockServer, share_memory
from engine.onnx import is_onnx
from engine.onnx_writing import OnnxFile, save_onnx
from engine.options import PASS_NAMES, Options
from engine.pnnx.files import kind_of_file
from engine.quantisation import AccuracyChange, LayerReport, QuantisedModel, compare_accuracy, quantise
from engine.session import Outputs, Session, State
from engine.tensor import TensorSpec, is_close
from engine.toolchain import describe_host, in_background, measure_peak

__all__ = [
    "AccuracyChange",
    "PASS_NAMES",
    "Annotations",
    "BundleError",
    "ComparedValue",
    "Comparison",
    "CompileError",
    "CompileMetrics",
    "Difference",
    "EngineError",
    "ExecutionError",
    "ExportFinding",
    "ExpressionError",
    "GraphError",
    "GraphState",
    "InputError",
    "Layer",
    "LayerReport",
    "Mismatch",
    "ModelFormatError",
    "NonFiniteOrigin",
    "OnnxFile",
    "Options",
    "Outputs",
    "ParamSyntaxError",
    "ParameterError",
    "Port",
    "Progress",
    "QuantisedModel",
    "Registry",
    "RunCancelledError",
    "RuntimeGraph",
    "RuntimeOperand",
    "RuntimeOperator",
    "Session",
    "ShapeError",
    "SharedBlockServer",
    "State",
    "TensorSpec",
    "UnsupportedOperatorError",
    "WeightsError",
    "cancelling",
    "asking_for_room",
    "check",
    "compare",
    "compare_accuracy",
    "compile_metrics",
    "compose",
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
    "quantise",
    "read_file",
    "register",
    "registry",
    "save_onnx",
    "share_memory",
    "total_memory_bytes",
]
