"""From lowered steps to an executable (``generation``) or a template with symbolic sizes (``symbolic``).

memory (arena plan; clearing of borders that other tensors overwrite) -> objects (machine code of every distinct kernel;
``dynamic_kernels`` caches code with dynamic sizes) -> constants, one after the other.
"""
