"""Models that are no networks (``ai.onnx.ml``): trees, linear models, support vectors, what prepares features."""
