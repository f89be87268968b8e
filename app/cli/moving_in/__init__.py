"""``pnnx-serve import``: put a model of another tool into the store, with a config.toml made from its files.

command          the verb: choose a reader, write to the store
found            what a reader returns, and JSON files of models
hugging_face     folders of transformers, with or without an ONNX file
sentence_models  folders of sentence-transformers: pooling, layers behind it, normalisation
torchserve       .mar archives
onnx_file        .onnx files: what their metadata and graph say
"""

from app.cli.moving_in.command import execute

__all__ = ["execute"]
