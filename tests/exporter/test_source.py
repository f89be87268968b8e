"""Sources of models, and the errors if there is none."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import exporter
from exporter import SourceError


def write(folder: Path, text: str, name: str = "net_file.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(("name", "kind"), [
    ("Classifier", "Classifier"), ("make_classifier", "Classifier"), ("relu", "ReLU"),
])  # fmt: skip
def test_a_class_a_function_and_a_module_are_models(name: str, kind: str, networks: str) -> None:
    model = exporter.load_source(f"{networks}:{name}")
    assert type(model).__name__ == kind
    assert not model.training


def test_the_only_model_of_a_file_needs_no_name(torch: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "from torch import nn\nclass Net(nn.ReLU):\n    pass\n")
    assert type(exporter.load_source(path)).__name__ == "Net"


def test_a_file_imports_its_neighbours(torch: Any, tmp_path: Path) -> None:
    write(tmp_path, "size = 3\n", "exporter_test_neighbour.py")
    text = "from torch import nn\nfrom exporter_test_neighbour import size\nnet = nn.Linear(size, size)\n"
    assert exporter.load_source(write(tmp_path, text)).in_features == 3


def test_files_of_one_name_are_told_apart(torch: Any, tmp_path: Path) -> None:
    for size in (1, 2):
        (tmp_path / str(size)).mkdir()
        write(tmp_path / str(size), f"from torch import nn\nnet = nn.Linear({size}, 1)\n", "my-net.py")
    assert [exporter.load_source(str(tmp_path / name / "my-net.py")).in_features for name in "121"] == [1, 2, 1]


def test_an_installed_module_is_named_with_dots(torch: Any) -> None:
    assert type(exporter.load_source("torch.nn:ReLU")).__name__ == "ReLU"


def test_a_torchscript_file_is_a_model(torch: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "net.pt")
    with warnings.catch_warnings(action="ignore"):
        torch.jit.trace(torch.nn.ReLU(), torch.zeros(1)).save(path)
    assert exporter.load_source(path)(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]


@pytest.mark.parametrize(("name", "message"), [
    (":Clasifier", "networks.py: unknown name: found 'Clasifier', expected a name in it, such as Classifier"),
    (":number", "networks.py:number: it is neither a model nor a function or class that returns one: found int"),
    (":fails", "networks.py:fails: calling it without arguments failed: found RuntimeError: no weights here"),
    (":Tensor", "networks.py:Tensor: the result is not a model: found Tensor, expected an nn.Module"),
    ("", "networks.py: several models or none: found relu, attention, expected networks.py:NAME to say which"),
])  # fmt: skip
def test_a_name_that_gives_no_model_is_explained(name: str, message: str, networks: str) -> None:
    with pytest.raises(SourceError) as caught:
        exporter.load_source(f"{networks}{name}")
    assert str(caught.value) == message


@pytest.mark.parametrize(("text", "message"), [
    ("import nothing_of_this_name\n", "importing it failed: found ModuleNotFoundError: No module named 'nothing_of_"),
    ("x = 1\n", "several models or none: found none, expected net_file.py:NAME"),
    ("x = \n", "importing it failed: found SyntaxError"),
])  # fmt: skip
def test_a_file_without_a_model_is_explained(text: str, message: str, torch: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        exporter.load_source(write(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize("source", ["nothing.py", "nothing.py:Net", "nothing.pt"])
def test_a_missing_file_is_named(source: str, torch: Any) -> None:
    with pytest.raises(SourceError, match=f"^{source.partition(':')[0]}: no such file"):
        exporter.load_source(source)


def test_weights_without_a_model_are_recognised(torch: Any, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "w.pt")
    with pytest.raises(SourceError, match="w.pt: weights without a model, expected the Python file of the model"):
        exporter.load_source(str(tmp_path / "w.pt"))


def test_a_file_of_another_kind_is_no_torchscript(torch: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a TorchScript file"):
        exporter.load_source(write(tmp_path, "hello", "x.pt"))
