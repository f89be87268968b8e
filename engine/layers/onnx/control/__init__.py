"""Branches, loops, lists and texts."""
