"""Direct convolution: register-tiled product, depthwise, grouped; each with its cost model."""
