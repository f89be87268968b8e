"""Operators on the order of elements: sorting, searching, counting."""
