"""Frames, windows and spectra of signals."""
