"""Winograd convolution: blocking (cost model), transforms, stages, layout, and the kernel."""
