"""Entry for ONNX's public backend scoreboard."""
