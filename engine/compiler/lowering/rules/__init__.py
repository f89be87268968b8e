"""A layer to kernels: a room a kind of work, a module a family of layers; ``registry`` has what each wants around it.

Which kernel a convolution gets, conv_kernels decides; the models of cost it asks are the kernels' own.
"""
