"""Translators of ``com.microsoft`` operators, which onnxruntime's optimisers and quantisers write, to standard ones."""
