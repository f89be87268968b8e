"""The compiler: from a graph to machine code through LLVM, and the memory and threads it runs with.

graph -> lowering (operators to kernels) -> kernels (IR text) -> machine (object code) -> program -> instance
"""

from engine.compiler.compiled import CompiledGraph, CompileOptions

__all__ = ["CompileOptions", "CompiledGraph"]
