"""From lowered steps to an executable, in the order of ``generation``.

memory (an address in the arena for every tensor) -> clearing (borders that other tensors overwrite) -> objects (machine
code of every distinct kernel) -> constants, one after the other.
"""
