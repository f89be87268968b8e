"""Definitions of operators: one class per operator, registered for its PNNX types.

``definition`` and ``operands`` hold what all layers share; every other folder is a family. Importing the package
registers every layer. To add an operator, see CONTRIBUTING.md.
"""

from __future__ import annotations

import importlib
import pkgutil

from engine.layers.aliases import add_aliases
from engine.layers.definition.binding import PRECISION, bind
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import Registry, register, registry
from engine.layers.definition.signature import Signature

# Every module of the package registers the layers it defines; a new family is a new file, nothing else.
for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
add_aliases(registry)

__all__ = [
    "NO_ANNOTATIONS",
    "PRECISION",
    "Annotations",
    "BoundLayer",
    "Layer",
    "Registry",
    "Signature",
    "bind",
    "register",
    "registry",
]
