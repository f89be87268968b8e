"""Lowering rules over whole rows: normalisation, reductions, distances, order."""
