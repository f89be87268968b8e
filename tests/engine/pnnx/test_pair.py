"""Reading and writing on disk: which files, which failures, and what is left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from engine import pnnx
from engine.errors import EngineError, ModelFormatError, ParamSyntaxError, WeightsError
from tests.engine.pnnx.build import EMPTY_ZIP, EMPTY_ZIP64, pair, param, save

WEIGHTLESS = ["pnnx.Input in 0 1 0", "pnnx.Output out 1 0 0"]
WEIGHTED = ["pnnx.Attribute a 0 1 0 @data=(3)u8", "pnnx.Output out 1 0 0"]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("weights", [None, EMPTY_ZIP, EMPTY_ZIP64], ids=["no file", "22 bytes", "98 bytes"])
def test_model_without_attributes_needs_no_weights(tmp_path: Path, weights: bytes | None) -> None:
    path = save(tmp_path, param(WEIGHTLESS), weights)
    assert len(pnnx.read(path).operators) == 2
    assert len(pnnx.read(path, tmp_path / "model.pnnx.bin").operators) == 2


def test_paths_may_be_strings(tmp_path: Path) -> None:
    path = str(pair(tmp_path, WEIGHTED, {"a.data": b"123"}))
    assert pnnx.read(path, path.replace(".param", ".bin")) == pnnx.read(Path(path))


def test_weights_may_lie_elsewhere(tmp_path: Path) -> None:
    path = pair(tmp_path, WEIGHTED, {"a.data": b"123"})
    (tmp_path / "model.pnnx.bin").rename(tmp_path / "weights")
    assert pnnx.read(path, tmp_path / "weights").operators[0].attributes["data"].data.tolist() == [49, 50, 51]


def test_missing_text_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError) as caught:
        pnnx.read(tmp_path / "model.pnnx.param")
    assert str(caught.value) == "model.pnnx.param: the file does not exist"


def test_missing_weights_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError) as caught:
        pnnx.read(pair(tmp_path, WEIGHTED))
    assert str(caught.value) == "model.pnnx.bin: the file does not exist"


def test_damaged_weights_file_is_refused_even_if_nothing_needs_it(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"^model.pnnx.bin: not a zip archive: found 0 bytes without an end record$"):
        pnnx.read(save(tmp_path, param(WEIGHTLESS), b""))


def test_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "model.pnnx.param").mkdir()
    with pytest.raises(ModelFormatError, match=r"^model.pnnx.param: not a regular file$"):
        pnnx.read(tmp_path / "model.pnnx.param")


def test_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pnnx.param")
    with pytest.raises(ModelFormatError, match=r"^model.pnnx.param: not a regular file$"):
        pnnx.read(tmp_path / "model.pnnx.param")


def test_file_beyond_the_limit_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "model.pnnx.param").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(ModelFormatError) as caught:
        pnnx.read(tmp_path / "model.pnnx.param")
    expected = "model.pnnx.param: the file is too large: found 268,435,457 bytes, expected at most 268,435,456"
    assert str(caught.value) == expected


@pytest.mark.parametrize("path", ["x\0.param", "/dev/null/x.param", "y" * 300])
def test_impossible_path_is_refused(path: str) -> None:
    with pytest.raises(ModelFormatError):
        pnnx.read(path)
    with pytest.raises(EngineError):
        pnnx.write(pnnx.Graph([pnnx.Operator("pnnx.Attribute", "a", (), ("0",)), OUT]), path)


OUT = pnnx.Operator("pnnx.Output", "out", ("0",))


def test_model_may_be_written_over_the_files_it_is_mapped_from(tmp_path: Path) -> None:
    path = pair(tmp_path, WEIGHTED, {"a.data": b"123"})
    graph = pnnx.read(path)
    pnnx.write(graph, path)
    assert pnnx.read(path, verify=True) == graph
    assert sorted(content(tmp_path)) == ["model.pnnx.bin", "model.pnnx.param"]


def test_written_files_have_ordinary_permissions(tmp_path: Path) -> None:
    pnnx.write(pnnx.read(pair(tmp_path, WEIGHTED, {"a.data": b"123"})), tmp_path / "b.param")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "b.param", "b.bin")}
    assert len(modes) == 1


def test_link_to_a_model_stays_a_link(tmp_path: Path) -> None:
    graph = pnnx.read(pair(tmp_path, WEIGHTED, {"a.data": b"123"}))
    (tmp_path / "link.param").symlink_to(tmp_path / "model.pnnx.param")
    pnnx.write(graph, tmp_path / "link.param", tmp_path / "model.pnnx.bin")
    assert (tmp_path / "link.param").is_symlink()


def test_graph_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ParamSyntaxError):
        pnnx.write(pnnx.Graph([pnnx.Operator("pnnx.Output", "out", ("0",))]), tmp_path / "m.param")
    assert content(tmp_path) == {}


def test_missing_folder_is_refused_without_its_path(tmp_path: Path) -> None:
    graph = pnnx.read(pair(tmp_path, WEIGHTLESS))
    with pytest.raises(EngineError) as caught:
        pnnx.write(graph, tmp_path / "nowhere" / "m.param")
    expected = "m.bin and m.param: the files cannot be written: found No such file or directory"
    assert str(caught.value) == expected


def test_two_files_do_not_fit_in_one_place(tmp_path: Path) -> None:
    graph = pnnx.read(pair(tmp_path, WEIGHTLESS))
    with pytest.raises(EngineError, match=r"^m and m: two outputs have the same path$"):
        pnnx.write(graph, tmp_path / "m", tmp_path / "m")


@pytest.mark.parametrize("blocked", ["m.param", "m.bin"])
def test_place_that_is_a_folder_leaves_the_other_place_alone(tmp_path: Path, blocked: str) -> None:
    graph = pnnx.read(pair(tmp_path, WEIGHTLESS))
    (tmp_path / blocked).mkdir()
    with pytest.raises(EngineError, match="the files cannot be written: found Is a directory"):
        pnnx.write(graph, tmp_path / "m.param")
    assert sorted(path.name for path in tmp_path.iterdir()) == [blocked, "model.pnnx.param"]


@pytest.mark.parametrize("failing", [1, 2])
def test_failure_between_the_files_restores_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    path = pair(tmp_path, WEIGHTED, {"a.data": b"123"})
    before = content(tmp_path)
    data = np.zeros(3, np.uint8)
    attribute = pnnx.Attribute(data.shape, data.dtype, data)
    graph = pnnx.Graph([pnnx.Operator("pnnx.Attribute", "a", (), ("0",), {}, {"data": attribute}), OUT])
    calls, replace = [], os.replace

    def fail_once(source: str, place: str) -> None:
        calls.append(place)
        if len(calls) == failing:
            raise OSError(5, "Input/output error")
        replace(source, place)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(EngineError, match="found Input/output error"):
        pnnx.write(graph, path)
    assert content(tmp_path) == before


def test_interrupted_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pnnx.read(pair(tmp_path, WEIGHTLESS))

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pnnx.write(graph, tmp_path / "m.param")
    assert list(content(tmp_path)) == ["model.pnnx.param"]
