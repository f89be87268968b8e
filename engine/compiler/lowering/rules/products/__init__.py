"""Products: linear layers, stacks of matrices, attention, sums over any dimensions, transforms that are products."""
