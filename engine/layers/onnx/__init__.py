"""Layers of ONNX operators that no core operator corresponds to; the others are decomposed by ``engine/onnx``.

The docstring of each says what the core lacks. A file pair does not record its operator set: a value that moved from
attribute to operand may come as either.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
