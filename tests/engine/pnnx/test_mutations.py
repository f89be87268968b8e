"""Mangled models are refused, never worse. ``fuzz.py`` runs this at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.pnnx import fuzz
from tests.engine.pnnx.build import param
from tests.nightly import IS_NIGHTLY


@pytest.mark.parametrize("seed", range(4))
def test_mangled_models_are_read_or_refused_in_bounded_memory(seed: int) -> None:
    outcomes = fuzz.run(5000 if IS_NIGHTLY else 150, seed)
    assert set(outcomes) == {"ParamSyntaxError", "WeightsError", "read"}


def test_unmangled_seeds_are_read(tmp_path: Path) -> None:
    assert {fuzz.check(tmp_path, pair, verify=True) for pair in fuzz.SEEDS} == {"read"}


def test_every_truncation_of_the_text_is_refused_or_ends_in_its_last_word(tmp_path: Path) -> None:
    text, weights = fuzz.SEEDS[0]
    read = [end for end in range(len(text)) if fuzz.check(tmp_path, (text[:end], weights), verify=False) == "read"]
    assert read == [len(text) - 1]


# What reading may take beside its proportion is far less than the proportion of the shortest of these.
HEAVY = {
    "counts": b"7767517\n999999999 999999999\npnnx.Input a 0 999999999 0\n",
    "operators": param([*(f"a {i} 0 0" for i in range(5_000)), "pnnx.Input in 0 1 0", "pnnx.Output o 1 0 0"]),
    "operands": param([f"a i 0 25000 {' '.join(map(str, range(25_000)))}", "pnnx.Output o 1 0 0"]),
    "list": param(["pnnx.Input in 0 1 0", f"a l 0 0 k=({'1.5,' * 25_000}1)", "pnnx.Output o 1 0 0"]),
    "entries": param([f"a l 0 1 0 {' '.join(f'{i}=' for i in range(25_000))}", "pnnx.Output o 1 0 0"]),
    "blanks": param([f"a l 0 1 0 k={'a ' * 100_000}", "pnnx.Output o 1 0 0"]),
    "lines": b"7767517\n2 1\n" + b"\n" * 1_000_000,
}


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY)
def test_heavy_text_takes_memory_in_proportion(tmp_path: Path, text: bytes) -> None:
    assert fuzz.check(tmp_path, (text, fuzz.SEEDS[1][1]), verify=False) in ("ParamSyntaxError", "read")
