"""Reductions of many elements to one, and running results."""
