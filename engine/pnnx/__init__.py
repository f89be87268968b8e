"""The PNNX file pair, read and written without loss, and without interpreting its operators.

graph = read("model.pnnx.param")                 # and model.pnnx.bin, as they are now
write(graph, "copy.pnnx.param", "copy.pnnx.bin")

Reading: files -> param (line, values, shapes) and archive -> pair. Writing: printer and archive.
"""

from __future__ import annotations

from engine.pnnx.graph import Attribute, Graph, Operator, Parameter
from engine.pnnx.pair import read, understand, write
from engine.pnnx.printer import format_param

__all__ = ["Attribute", "Graph", "Operator", "Parameter", "format_param", "read", "understand", "write"]
