"""From lowered steps to a blueprint, in the order of ``generation``.

memory (an address in the arena for everything) -> clearing (borders that others write over) -> objects (machine code of
every kernel that is different) -> constants one after the other.
"""
