"""Operators of the ONNX standard that pnnx leaves as they are, under their own names and with their own attributes.

pnnx turns what it can into PyTorch's operators; the rest (an ``ArgMax`` without an axis, a ``Pad`` whose amounts are
computed, all of them at optimisation level 0) is served here. A pair does not say which version of the standard it was
made from: what moved from attribute to operand over the years may come as either.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
