"""Operands and dtypes of ONNX layers."""
