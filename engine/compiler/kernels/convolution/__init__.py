"""Direct convolution: as a register-blocked product, and depthwise."""
