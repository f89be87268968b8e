"""Benchmark of engines in turn on the same inputs, for ``pnnx-serve bench`` and benchmarks/; imports nothing of ours.

contest: the engines, whose answers are checked before they are timed in turn.
"""
