"""One colour for each family of operators, the same in every drawing.

White text on any of them has a contrast of at least 4.5 to 1 (WCAG 2.2, level AA).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COLOURS: Final[Mapping[str, str]] = {
    "io": "#475569",
    "conv": "#2563eb",
    "linear": "#4f46e5",
    "attention": "#a21caf",
    "recurrent": "#be185d",
    "pool": "#0f766e",
    "norm": "#4d7c0f",
    "activation": "#b45309",
    "shape": "#64748b",
    "reduce": "#0e7490",
    "expression": "#7c3aed",
    "constant": "#78716c",
    "other": "#b91c1c",
}
TEXT: Final = "#ffffff"
