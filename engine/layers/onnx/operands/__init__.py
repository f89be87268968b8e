"""What ONNX's layers ask of their operands, and its dtypes."""
