"""Built graphs as ONNX files.

save_onnx(graph, "model.onnx")     # any runtime of ONNX computes the same

graph.py      operators of a graph, one after the other; refuses those that ONNX cannot express, all at once
writer.py     what a rule calls to add nodes, and the application of a layer to values
rules/        one function a layer, one module a family; layers that are composed of others need none
builder.py    nodes, stored tensors, names and the operator set
protobuf.py   messages of the file
model.py      a whole model, and its files
"""

from __future__ import annotations

from engine.onnx_writing.model import OnnxFile, save_onnx, to_model

__all__ = ["OnnxFile", "save_onnx", "to_model"]
