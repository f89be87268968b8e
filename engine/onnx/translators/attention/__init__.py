"""Attention in the words of ONNX and onnxruntime as that for which there are kernels; rotated positions likewise."""
