"""Recorded requests: what is kept, for whom, and within which limits."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.models import recorder as module
from app.models.recorder import Recorder, recorded_files
from app.models.request import InferRequest, Prepared
from app.models.statistics import Timing
from tests.app.client import serving
from tests.app.sample_models import elementwise, write_model
from tests.patience import until


def prepared(*values: float, **more: Any) -> Prepared:
    return Prepared(
        request=InferRequest(decode=lambda _: {}, parameters={}), inputs={}, options=None, wanted=None, timing=Timing(),
        tensors={"file": np.array(values, np.float32)}, **more,
    )  # fmt: skip


def kept(folder: Path) -> list[list[float]]:
    return [np.load(path)["file"].tolist() for path in recorded_files(folder)]


def is_idle() -> bool:
    return not any(thread.name == "recorder" for thread in threading.enumerate())


def test_the_last_requests_are_kept_and_only_for_the_owner(tmp_path: Path) -> None:
    folder = tmp_path / "recorded" / "m" / "1"
    recorder = Recorder(folder, 3, 1 << 20)
    for number in range(5):
        recorder.add(prepared(number))
        until(is_idle)
    assert kept(folder) == [[2], [3], [4]]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_bytes_are_bounded_and_a_larger_request_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 100, 4_000)
    for number in range(4):
        recorder.add(prepared(*[number] * 200))
        until(is_idle)
    recorder.add(prepared(*[9] * 1_001))
    until(is_idle)
    assert [row[0] for row in kept(tmp_path)] == [1, 2, 3]


def test_further_runs_of_a_request_are_recorded_and_texts_are_not(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 10, 1 << 20)
    recorder.add(prepared(1, rest=(prepared(2),)))
    texts = prepared()
    texts.tensors["file"] = np.array(["a"])
    recorder.add(texts)
    until(is_idle)
    assert kept(tmp_path) == [[1], [2]]


def test_values_are_those_of_the_request_although_its_memory_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    write = module._write
    monkeypatch.setattr(module, "_write", lambda *given: (gate.wait(), write(*given)))
    recorder, request = Recorder(tmp_path, 10, 1 << 20), prepared(1)
    recorder.add(request)
    request.tensors["file"][:] = 7
    gate.set()
    until(is_idle)
    assert kept(tmp_path) == [[1]]


def test_requests_that_come_faster_than_they_are_written_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    write = module._write
    monkeypatch.setattr(module, "_write", lambda *given: (gate.wait(), write(*given)))
    recorder = Recorder(tmp_path, 1_000, 1 << 20)
    for number in range(100):
        recorder.add(prepared(number))
    gate.set()
    until(is_idle)
    assert 1 <= len(kept(tmp_path)) <= module._WAITING + 1


def test_a_folder_that_cannot_be_written_ends_recording_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(tmp_path / "file" / "1", 10, 1 << 20)
    for _ in range(3):
        recorder.add(prepared(1))
        until(is_idle)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["requests are no longer recorded"]


def test_settings_record_requests_record_dir_and_record_max_bytes_keep_inputs_of_answers(tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "recorded"
    write_model(store, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(store) as client:
        client.infer("one", [[1, 2]])
        assert client.plane.store.version("one").network.recorder is None
    with serving(store, record_requests=2, record_dir=folder, record_max_bytes=1 << 20) as client:
        for value in (1, 2, 3):
            assert client.infer("one", [[value, value]]).status_code == 200
            until(is_idle)
        assert client.infer("one", [[1, 2, 3]]).status_code == 422
        until(is_idle)
    files = recorded_files(folder / "one" / "1")
    assert [np.load(path)["in0"].tolist() for path in files] == [[[2, 2]], [[3, 3]]]
