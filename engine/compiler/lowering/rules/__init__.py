"""Lowering rules: a package for each kind of work, a module for a family of layers, registered in ``registry``.

conv_kernels selects the kernel of a convolution; the cost models belong to the kernels.
"""
