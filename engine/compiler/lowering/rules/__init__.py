"""A layer to kernels: a module a family of layers, in ``registry`` with what it wants around it.

Which kernel a convolution gets, conv_kernels decides; the models of cost it asks are the kernels' own.
"""
