"""A layer to kernels: a module a family of layers."""
