"""Translators of ONNX's and onnxruntime's attention and rotary embeddings to layers that have kernels."""
