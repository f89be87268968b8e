"""Code generation with LLVM: ``ir`` writes IR text, ``object_code`` compiles it, ``host`` describes the target.

Cost models use the figures of ``host``: vector width, registers, caches, cost of a byte.
"""
