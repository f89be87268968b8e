"""Kernels: geometry, and how to write it as IR; a module or a folder a kernel, in one contract (``kernel``).

How a kernel is blocked, and what that costs, is decided beside it: choose_tile, winograd/blocking. What kernels do to
a value before they store it is an expression (``expr``), made of functions.
What several kernels share: channels and grid (how work is cut), folding, target.
"""
