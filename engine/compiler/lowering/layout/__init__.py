"""Where results lie, decided before kernels are chosen.

images      which tensors lie channels-last
joins       which are computed straight into their place of a concatenation
placement   both of them, and the borders of zeros that convolutions ask for
"""
