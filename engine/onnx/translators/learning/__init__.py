"""Classical models (``ai.onnx.ml``): trees, linear models, support vectors and feature preparation."""
