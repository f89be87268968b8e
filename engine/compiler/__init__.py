"""The compiler: from a graph to machine code through LLVM, and the memory and threads it runs with.

graph -> lowering (operators to kernels) -> kernels (IR text) -> codegen (object code) -> assembly (a blueprint)
blueprint -> cache (a file) -> runtime (callable code, memory and threads)

generator goes the first way for one set of input shapes; builder makes programs, from the cache where it has them;
compiled has a program for each set of shapes it meets, parting says when a batch runs in parts. storage: where tensors
lie, and the views of them. A blueprint is plain data: the cache keeps it on disk, and a start from there needs none of
what stands before it.
"""

from engine.compiler.compiled import CompiledGraph

__all__ = ["CompiledGraph"]
