"""What operators mean: one class a family member, registered by the PNNX types it serves.

Importing the package registers every layer. To add an operator, see CONTRIBUTING.md.
"""

from __future__ import annotations

import importlib
import pkgutil

from engine.layers.binding import BoundLayer, bind
from engine.layers.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.registry import Registry, register, registry
from engine.layers.signature import Signature

# Every module of the package registers the layers it defines; a new family is a new file, nothing else.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "NO_ANNOTATIONS",
    "Annotations",
    "BoundLayer",
    "Layer",
    "Registry",
    "Signature",
    "bind",
    "register",
    "registry",
]
