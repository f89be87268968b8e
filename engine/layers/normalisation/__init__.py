"""Normalisation: to mean and variance, to length, to a sum of 1."""
