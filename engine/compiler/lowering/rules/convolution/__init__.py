"""Convolutions: which kernel, which taps, transposed and deformable ones."""
