"""Direct convolution: as a register-blocked product, and depthwise; beside each, how it is tiled."""
