"""Rates of processors: a table by micro-architecture (machines), measurement on request (bench), cost models."""
