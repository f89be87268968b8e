"""Tests that loading stops when it is no longer wanted, with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.models.folder.repository import ModelFiles, find_models, read_model
from app.models.registry.loader_pool import LoadFailedError, Stop, load_model
from app.models.registry.store import Store
from app.settings import Settings
from tests.app.sample_models import write_model


class Impatient(Stop):
    """Counts how often it is asked, and says no after so many times."""

    def __init__(self, until: float = float("inf")) -> None:
        super().__init__(60.0)
        self.times = 0
        self.until = until

    def is_cancelled(self) -> bool:
        self.times += 1
        return self.times > self.until


def chain(length: int) -> list[str]:
    """Weights that are folded, kernels, and layers that machine code leaves to numpy."""
    lines = ["pnnx.Input in0 0 1 v0 #v0=(1,4)f32"]
    for n in range(length):
        lines += [
            f"pnnx.Attribute weight{n} 0 1 w{n} @data=(1,4)f32 #w{n}=(1,4)f32",
            f"pnnx.Expression folded{n} 1 1 w{n} f{n} expr=mul(@0,2)",
            f"pnnx.Expression sum{n} 2 1 v{n} f{n} s{n} expr=add(@0,@1)",
            f"aten::exponential drawn{n} 1 1 s{n} v{n + 1}",
        ]
    return [*lines, f"pnnx.Output out 1 0 v{length}"]


def files(store: Path, length: int) -> ModelFiles:
    weights = {f"weight{n}.data": np.full((1, 4), n, np.float32) for n in range(length)}
    write_model(store, f"chain{length}", chain(length), weights)
    return next(read_model(each) for each in find_models(store) if each.name == f"chain{length}")


def load(found: ModelFiles, stop: Stop) -> None:
    settings = Settings(store=found.folder.parent, cache=False)
    load_model(found, found.versions[0], settings, 1, stop, parts=Store(settings, 1), verify=True)


def test_a_no_at_any_time_ends_loading(tmp_path: Path) -> None:
    found, patient = files(tmp_path, 6), Impatient()
    load(found, patient)
    assert patient.times > 100
    # Not to its very end: a load may ask a few times less, where what is timed meanwhile comes out otherwise.
    for until in {*range(4), *range(0, 9 * patient.times // 10, patient.times // 15)}:
        stop = Impatient(until)
        with pytest.raises(LoadFailedError):
            load(found, stop)
        # It unwinds, and begins nothing else.
        assert stop.times <= until + 12


def test_a_longer_model_asks_in_proportion(tmp_path: Path) -> None:
    asked = []
    for length in (5, 10):
        patient = Impatient()
        load(files(tmp_path, length), patient)
        asked.append(patient.times)
    assert asked[1] - asked[0] > 5 * 4 * 3  # three times at least for each operator: built, tried, compiled
