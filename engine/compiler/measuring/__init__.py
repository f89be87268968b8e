"""Rates of processors: a table by micro-architecture (machines), a measurement on request (bench), cost models."""
