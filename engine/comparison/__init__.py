"""Comparison of a graph with recorded values: finds the first operator that diverges."""

from __future__ import annotations

from engine.comparison.comparison import ComparedValue, Comparison, compare
from engine.comparison.difference import Difference, measure
from engine.comparison.origin import NonFiniteOrigin

__all__ = ["ComparedValue", "Comparison", "Difference", "NonFiniteOrigin", "compare", "measure"]
