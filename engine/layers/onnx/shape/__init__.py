"""Shapes, padding, spectra."""
