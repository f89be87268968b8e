"""Recurrent networks, as PyTorch and as ONNX have them."""
