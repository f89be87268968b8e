"""Benchmark of engines in turn on the same inputs, for ``pnnx-serve bench`` and benchmarks/; imports nothing of ours.

contest (the engines; checks each answer) -> timing (in turn).
"""
