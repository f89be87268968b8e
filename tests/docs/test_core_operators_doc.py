"""Tests that docs/core-operators.md is current, and that aliases have the layer of their core operator."""

from __future__ import annotations

import pytest

import engine
from docs.generate_core_operators import PAGE, render
from engine.errors import ParameterError
from engine.layers.definition.registry import Registry


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python docs/generate_core_operators.py"


def test_every_decomposed_operator_names_its_parts() -> None:
    rows = PAGE.read_text(encoding="utf-8").partition("## Decomposed")[2].splitlines()[4:]
    assert len(rows) > 40
    assert all(row.split("|")[3].strip() for row in rows)


def test_an_alias_has_the_layer_of_its_core_operator_and_its_own_mapping() -> None:
    bmm, matmul = engine.registry["torch.bmm"], engine.registry["torch.matmul"]
    assert bmm.layer is matmul.layer
    assert bmm.renamed == {"mat2": "other"}


def test_an_alias_is_registered_once() -> None:
    registry = Registry()
    registry.register("a")(engine.registry["F.relu"].layer)
    registry.alias("a", "b")
    with pytest.raises(ParameterError, match="b: operator type is registered already"):
        registry.alias("a", "b")
