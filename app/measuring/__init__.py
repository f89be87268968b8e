"""Engines that answer the same inputs and take turns, for ``pnnx-serve bench`` and for benchmarks/. Nothing of ours.

rivals (the engines) -> contest (each must answer right, by answers) -> timing (in turns).
"""
