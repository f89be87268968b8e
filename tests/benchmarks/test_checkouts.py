"""Two checkouts in turn: the worker checks its answer, and the table divides the first time by the second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.checkouts import ROOT, Pair, Worker, compare, report
from tests.app.sample_models import elementwise, write_model


def network(folder: Path, answer: float) -> Path:
    write_model(folder, "net", elementwise("add(@0,1)", "(1,3)f32"))
    np.save(folder / "net" / "1" / "input.npy", np.zeros((1, 3), np.float32))
    np.save(folder / "net" / "1" / "output.npy", np.full((1, 3), answer, np.float32))
    return folder / "net" / "1"


def test_both_take_turns_on_the_same_network(tmp_path: Path) -> None:
    caches = [tmp_path / "a", tmp_path / "b"]
    pair = compare([ROOT, ROOT], caches, network(tmp_path, 1), threads=1, rounds=2, seconds=0.0)
    assert len(pair.before_s) == len(pair.after_s) == 6 and min(pair.before_s) > 0


def test_a_larger_batch_has_files_of_its_own(tmp_path: Path) -> None:
    folder = network(tmp_path, 1)
    np.save(folder / "input_b2.npy", np.ones((2, 3), np.float32))
    np.save(folder / "output_b2.npy", np.full((2, 3), 2, np.float32))
    pair = compare([ROOT, ROOT], [tmp_path / "a"] * 2, folder, threads=1, rounds=1, seconds=0.0, batch=2)
    assert len(pair.before_s) == 3


def test_a_checkout_that_answers_wrongly_is_not_timed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="differs from PyTorch's answer"):
        Worker(ROOT, network(tmp_path, 2), 1, tmp_path / "cache")


def test_the_table_has_both_and_their_ratio() -> None:
    pair = Pair(network="net", threads=2, before_s=[0.002, 0.004], after_s=[0.001, 0.005])
    text = report(["old", "new"], [pair])
    assert "| net | 2 | 2.00 / 3.00 | 1.00 / 3.00 | 2.000 | 1.000 |" in text
    assert "Geometric mean 2.000, lowest 2.000, highest 2.000." in text
