"""Benchmark of engines in turn on the same inputs, for ``pnnx-serve bench`` and benchmarks/; imports nothing of ours.

rivals (the engines) -> contest (checks each answer) -> timing (in turn).
"""
