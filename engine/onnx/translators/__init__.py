"""Translators, one module per operator family, found automatically. See docs/onnx-translators.md to add one."""
