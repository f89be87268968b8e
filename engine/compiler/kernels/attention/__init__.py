"""Attention as one kernel.

attention   the kernel: loops over blocks of keys and tiles of queries
layout      geometry and blocking
tiles       inner functions: scores of a tile, softmax weights, weighted sums of values
rows        row-wise masking and softmax of the scores
mask_range  mask range pruning: the keys a tile of queries has to read
"""
