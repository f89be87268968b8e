"""Trees, support vectors and features of ``ai.onnx.ml``."""
