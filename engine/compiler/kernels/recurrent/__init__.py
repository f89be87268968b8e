"""Recurrent kernels: blocking and packing, cells, the inner function of a step, the loop over steps."""
