"""Layers of ONNX operators that pnnx keeps under their ONNX names and attributes.

pnnx converts most operators to PyTorch's; these layers serve the rest (an ``ArgMax`` without an axis, a ``Pad`` with
computed amounts, all operators at optimisation level 0). A file pair does not record its operator set: a value that
moved from attribute to operand may come as either.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
