"""Links of a model's folder are followed within the folder and its store, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.models.folder.repository import ConfigError, scan
from app.models.folder.toml import check_links
from app.models.sessions import read_graph
from app.settings import Settings
from tests.app.client import serving
from tests.app.pictures import png
from tests.app.sample_models import elementwise, write_model

ADD = elementwise("add(@0,1)", "(?,2)f32")
LABELS = 'labels = "labels.txt"'
LEADS_OUT = "is a link, or behind a link, to a place outside the model's folder"
# What is read for a model. Each of them, or the folder that it lies in, may be a link.
FILES = ["config.toml", "labels.txt", "1/model.pnnx.param", "1/model.pnnx.bin", "examples/x.png", "1", "examples"]


def write(store: Path, name: str) -> Path:
    write_model(store, name, ADD, config=LABELS)
    folder = store / name
    (folder / "labels.txt").write_text("cat\ndog")
    (folder / "examples").mkdir()
    (folder / "examples/x.png").write_bytes(png())
    return folder


def moved(path: Path, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, to)
    return to


def relative(path: Path, to: Path) -> None:
    path.symlink_to(os.path.relpath(moved(path, to), path.parent))


@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_link_that_leads_out_of_the_store_is_refused_with_its_name(tmp_path: Path, is_absolute: bool) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    for number, file in enumerate(FILES):
        path = write(store, f"bad{number}") / file
        to = moved(path, outside / f"{number}" / path.name)
        path.symlink_to(to if is_absolute else os.path.relpath(to, path.parent))
    write(store, "good")
    with serving(store, cache=False) as client:
        rows = {row["name"]: row for row in client.get("/models").json()["models"]}
        assert rows["good"]["state"] == "ready"
        for number, file in enumerate(FILES):
            name = f"bad{number}"
            if file.startswith("examples"):
                answer = client.get(f"/models/{name}/samples/x.png")
                assert answer.status_code == 404 and f"'x.png' {LEADS_OUT}" in answer.json()["error"]["message"]
            else:
                assert rows[name]["state"] == "failed" and LEADS_OUT in rows[name]["reason"], file
                assert str(tmp_path) not in rows[name]["reason"]
        assert client.get("/models/good/samples/x.png").content == png()


def test_passwords_of_the_machine_are_no_sample_and_no_labels(tmp_path: Path) -> None:
    folder = write(tmp_path, "one")
    for file in ("examples/passwd.png", "labels.txt"):
        (folder / file).unlink(missing_ok=True)
        (folder / file).symlink_to("/etc/passwd")
    with serving(tmp_path, cache=False) as client:
        assert "root:" not in client.get("/models/one").text
        assert client.get("/models/one/samples/passwd.png").status_code == 404
        assert "passwd" not in client.get("/models/one/samples").text
    with pytest.raises(ConfigError, match=LEADS_OUT):
        check_links(folder / "labels.txt", [folder])


def config_map(folder: Path) -> None:
    """The folder as Kubernetes mounts a ConfigMap there: ``..data`` is replaced as a whole when it changes."""
    (folder / "..2026").mkdir()
    (folder / "..data").symlink_to("..2026")
    for path in [path for path in folder.iterdir() if not path.name.startswith("..")]:
        moved(path, folder / "..2026" / path.name)
        path.symlink_to(f"..data/{path.name}")


def files_in_folder(folder: Path) -> None:
    for number, file in enumerate(FILES[:-2]):
        relative(folder / file, folder / "kept" / str(number))


def folders_in_folder(folder: Path) -> None:
    for file in FILES[-2:]:
        relative(folder / file, folder / "kept" / file)


def files_in_store(folder: Path) -> None:
    for file in FILES[:-2]:
        relative(folder / file, folder.parent / ".shared" / file)


def of_folder(folder: Path) -> None:
    folder.symlink_to(moved(folder, folder.parent.parent / "elsewhere" / folder.name))


@pytest.mark.parametrize(
    "change",
    [
        config_map,
        files_in_folder,
        folders_in_folder,
        files_in_store,
        of_folder,
        lambda folder: config_map(folder.parent),
    ],
)
def test_links_within_the_folder_or_the_store_are_followed(change: Callable[[Path], None], tmp_path: Path) -> None:
    folder = write(tmp_path / "store", "one")
    change(folder)
    with serving(tmp_path / "store", cache=False) as client:
        assert client.get("/models/one").json()["labels"] == ["cat", "dog"]
        assert client.infer("one", [[1, 2]]).status_code == 200
        assert client.get("/models/one/samples/x.png").content == png()
        assert client.get("/models/one/graph?format=param").status_code == 200


def test_a_folder_that_is_one_model_by_itself_reads_nothing_beside_it(tmp_path: Path) -> None:
    folder = write(tmp_path, "one")
    relative(folder / "labels.txt", tmp_path / "labels.txt")
    assert scan(tmp_path)[0].problem is None
    assert LEADS_OUT in str(scan(folder, "one")[0].problem)


def test_pairs_of_the_store_itself_are_links_within_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_model(tmp_path, "one", ADD)
    for end in ("param", "bin"):
        moved(tmp_path / f"one/1/model.pnnx.{end}", store / f"one.pnnx.{end}")
    config_map(store)
    assert read_graph(scan(store)[0].versions[0], Settings()) is not None
    (store / "one.pnnx.param").unlink()
    (store / "one.pnnx.param").symlink_to(moved(store / "..2026/one.pnnx.param", tmp_path / "x.pnnx.param"))
    with pytest.raises(ConfigError, match=LEADS_OUT):
        read_graph(scan(store)[0].versions[0], Settings())


@pytest.mark.parametrize("file", ["model.onnx", "model.onnx.data", "model.onnx_data"])
def test_an_onnx_file_and_what_lies_beside_it_are_no_links_out_of_the_folder(file: str, tmp_path: Path) -> None:
    folder = tmp_path / "store/one/1"
    folder.mkdir(parents=True)
    for name in {"model.onnx", file}:
        (folder / name).write_bytes(b"x")
    (folder / file).unlink()
    (tmp_path / "outside").write_bytes(b"x")
    (folder / file).symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match=f"'{file}' {LEADS_OUT}"):
        read_graph(scan(tmp_path / "store")[0].versions[0], Settings())


def test_a_file_that_became_a_link_since_it_was_loaded_is_not_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "one") / "1/model.pnnx.param"
    with serving(tmp_path, cache=False, reload_interval_s=0) as client:
        assert client.get("/models/one/graph?format=param").status_code == 200
        path.unlink()
        path.symlink_to("/etc/passwd")
        answer = client.get("/models/one/graph?format=param")
        assert answer.status_code == 503 and LEADS_OUT in answer.json()["error"]["message"]


def test_what_is_no_path_at_all_is_left_to_its_reader(tmp_path: Path) -> None:
    for name in ("a\0b", "x" * 5000, "nowhere"):
        assert check_links(tmp_path / name, [tmp_path]) == tmp_path / name
