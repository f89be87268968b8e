"""From a built graph to a program: passes are done, shapes are decided, operators become kernels."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.host import Host, detect
from engine.compiler.lowering import Lowering, Options
from engine.compiler.program import Program, compile_program
from engine.graph import RuntimeGraph
from engine.tensor import TensorSpec


def compile_graph(
    graph: RuntimeGraph, inputs: Sequence[TensorSpec], host: Host | None = None, options: Options | None = None
) -> Program:
    """Machine code for a graph whose inputs have these shapes.

    Raises:
        CompileError: there is no generator for this processor, or generated code is not valid.
        EngineError: an operator does not accept what follows from these inputs.
    """
    values = graph.infer(inputs)
    lowering = Lowering(graph.operators, values, host or detect(), options or Options())
    lowering.run()
    return compile_program(lowering, inputs)
