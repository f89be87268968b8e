"""``export``: from PyTorch into the store, or one line that says why not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from app.cli import main

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x).relu()

class Loses(nn.Module):
    def forward(self, x):
        return x[:, 1:] * 2
"""
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the export extra")


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "cli_net.py").write_text(MODEL)
    return "cli_net.py"


def error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("pnnx-serve: error: ").removesuffix("\n")


@needs_torch
def test_a_model_becomes_a_version_of_the_store_and_can_be_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", f"{model}:Net", "--shape", "1,3", "--name", "net"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    first, *ports = captured.out.splitlines()
    assert first == "model_store/net/1: 4 operators, same answers as PyTorch at [1,3]f32"
    assert ports == ["x [1, 3] float32", "out0 [1, 2] float32"]
    np.save("x.npy", np.ones((1, 3), np.float32))
    assert main(["check", "net"]) == 0
    assert main(["run", "net", "--input", "x.npy"]) == 0


@needs_torch
def test_a_reference_is_what_compare_takes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["export", f"{model}:Net", "--shape", "1,3", "--shape2", "4,3", "--output", "out", "--reference", "r.npz"]
    assert main(call) == 0
    assert main(["compare", "out/model.pnnx.param", "--reference", "r.npz"]) == 0
    assert capsys.readouterr().out.endswith("no divergence\n")
    assert not Path("model_store").exists()


@needs_torch
def test_answers_that_differ_end_with_status_1_and_stay_out_of_the_store(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", f"{model}:Loses", "--shape", "1,5", "--shape2", "1,7"]) == 1
    assert error(capsys).startswith("the answers differ from PyTorch's at [1,5]f32: out0: ")
    assert not Path("model_store").exists()


@needs_torch
@pytest.mark.parametrize(("source", "flags", "message"), [
    ("nothing.py", ["--shape", "1"], "nothing.py: no such file"),
    ("cli_net.py:Nat", ["--shape", "1"], "cli_net.py: unknown name: found 'Nat', expected a name in it, such as Net"),
    ("cli_net.py:Net", ["--shape", "1,4"], "the model does not take inputs of shape [1, 4]: found RuntimeError: "),
    ("cli_net.py:Net", ["--shape", "x"], "not a shape: found 'x', expected sizes such as 1,3,224,224 or [1,77]i64"),
    ("cli_net.py:Net", ["--shape", "1,3", "--shape2", "1,3"], "the second shapes equal the first: found no difference"),
    ("cli_net.py:Net", ["--shape", "1,3", "--name", "a/b"], "invalid name of a model: found 'a/b'"),
])  # fmt: skip
def test_what_cannot_be_exported_is_one_line_and_status_1(
    source: str, flags: list[str], message: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", source, *flags]) == 1
    assert error(capsys).startswith(message)


def test_a_call_without_shapes_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "model.py"]) == 2
    assert error(capsys) == "--shape: missing, expected once for each input"


def test_without_torch_a_cpu_build_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["export", "model.py", "--shape", "1"]) == 1
    message = error(capsys)
    assert message.startswith("export needs torch")
    assert "pip install torch (the CPU build: https://pytorch.org/get-started/locally)" in message
