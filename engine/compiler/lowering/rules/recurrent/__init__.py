"""Lowering rules of recurrent networks of PyTorch and of ONNX."""
