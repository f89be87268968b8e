"""A layer to an expression that a kernel carries: a module a family of layers."""
