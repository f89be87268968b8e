"""Kernels: geometry, and how to write it as IR; a module or a folder a kernel."""
