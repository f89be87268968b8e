"""Operators of onnxruntime's own domain, which its optimisers and quantisers put into files: said in ordinary ones."""
