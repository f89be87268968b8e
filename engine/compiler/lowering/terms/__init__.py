"""Expression rules: from a layer to an expression that a kernel computes; a module a family of layers."""
