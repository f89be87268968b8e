"""The compiler: from a graph to machine code through LLVM, and the memory and threads that run it.

graph -> lowering (operators to kernels) -> kernels (IR text) -> codegen (object code) -> assembly (an executable)
executable -> cache (a file) -> runtime (callable code, memory and threads)

pipeline runs the first line for one set of input shapes, or for symbolic sizes. builder returns programs, from the
cache where it has them. compiled keeps a program for each set of shapes that it meets. storage describes where tensors
lie, and views of them. An executable is plain data: a start from the cache imports nothing of the first line.
"""

from engine.compiler.compiled import CompiledGraph

__all__ = ["CompiledGraph"]
