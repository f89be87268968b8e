"""Bundles: a model together with what was compiled of it, in a folder that travels.

manifest (what the folder holds, for which machine and engine) -> reading (the folder, every file held against it).
What the programs mean is the compiler's business, who makes a bundle is ``engine.compiler.bundling``.
"""

from __future__ import annotations

from engine.bundle.manifest import MANIFEST, PARAM, WEIGHTS, HostClass, Manifest, ProgramFile, StatedFile
from engine.bundle.reading import Bundle, is_bundle, open_bundle

__all__ = [
    "MANIFEST",
    "PARAM",
    "WEIGHTS",
    "Bundle",
    "HostClass",
    "Manifest",
    "ProgramFile",
    "StatedFile",
    "is_bundle",
    "open_bundle",
]
