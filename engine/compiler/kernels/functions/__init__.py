"""What expressions may apply to a vector of float32, in arithmetic every processor has.

``math`` has all of them by name, with what they cost; a module a family.
"""
