"""Attention as one kernel: the whole of it, its loops over blocks of keys, its inner functions.

attention   the kernel
layout      its geometry: how it is blocked, and what lies where
writer      the code around the inner functions: block after block of keys, tile after tile of queries
tiles       the inner functions: scores of a tile, weights, weighted sums of values
rows        scores made weights, row by row: masks and softmax
sight       how many keys a tile of queries has to look at, told from its mask
"""
