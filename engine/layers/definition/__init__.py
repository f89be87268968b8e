"""Definition of layers: class (layer), types (registry), schema (signature), parameters (parameter, hints).

binding resolves the arguments of an operator, in one place.
"""
