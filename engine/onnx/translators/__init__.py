"""Translators, one module a family; modules are found by themselves. How to add one: docs/onnx-translators.md."""
