"""Arithmetic on elements, of every dtype, and what is composed of it."""
