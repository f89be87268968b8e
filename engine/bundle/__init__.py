"""Bundles: a folder with a model and its compiled programs, which can be copied to other machines.

manifest (contents, host class and engine version) -> reading (the folder, each file verified against the manifest).
``engine.compiler.bundling`` writes bundles and runs their programs.
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
