"""docs/operators.md is what the registry says, and no type that pnnx is known to write is missing."""

from __future__ import annotations

from pathlib import Path

import engine
from docs.generate_operators import PAGE, render

CATALOGUE = Path(__file__).parent / "data" / "catalogue.txt"


def wanted() -> list[str]:
    """Types a layer is expected for: one a line, without those marked as not for a layer."""
    lines = [line.split() for line in CATALOGUE.read_text().splitlines() if not line.startswith("#")]
    return [words[0] for words in lines if len(words) == 1]


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python docs/generate_operators.py"


def test_every_type_of_the_catalogue_has_a_layer() -> None:
    missing = [type for type in wanted() if type not in engine.registry]
    assert not missing, f"{len(missing)} types without a layer: {', '.join(missing)}"


def test_every_type_of_the_catalogue_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [type for type in wanted() if f"`{type}`" not in page] == []


def test_every_layer_says_what_it_computes() -> None:
    layers = {engine.registry[type].layer for type in engine.registry}
    # A dataclass without a docstring is given its signature as one.
    silent = [
        layer.__name__ for layer in layers if (layer.__doc__ or f"{layer.__name__}(").startswith(f"{layer.__name__}(")
    ]
    assert silent == []
