"""Where a graph's numbers leave a reference: recorded values in, the first operator that diverges out."""

from __future__ import annotations

from engine.comparison.comparison import ComparedValue, Comparison, compare
from engine.comparison.difference import Difference, measure
from engine.comparison.origin import NonFiniteOrigin

__all__ = ["ComparedValue", "Comparison", "Difference", "NonFiniteOrigin", "compare", "measure"]
