"""Rules: how the layers of a family are written as ONNX nodes. New modules are found automatically."""
