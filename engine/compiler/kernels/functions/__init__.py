"""Functions of float32 vectors for expressions, in arithmetic every processor has; ``math`` lists them with costs."""
