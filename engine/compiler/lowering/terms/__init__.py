"""A layer to an expression that a kernel carries: a module a family of layers, in ``registry``; ``term`` asks it."""
