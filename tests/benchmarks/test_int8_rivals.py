"""``bench --against`` engines that quantise the network themselves. Needs onnx, onnxruntime, openvino and nncf."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from app.measuring import contest
from app.measuring.contest import ALLOWED_SHARE_OF_INT8, Contest, RivalError

RANDOM = np.random.default_rng(3)
WEIGHT = RANDOM.standard_normal((16, 3, 3, 3)).astype(np.float32)
X = RANDOM.standard_normal((1, 3, 12, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and a ReLU as ONNX."""
    onnx = pytest.importorskip("onnx")
    make = onnx.helper
    kind = onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [make.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), make.make_node("Relu", ["a"], ["y"])],
        "net",
        [make.make_tensor_value_info("x", kind, [1, 3, 12, 12])],
        [make.make_tensor_value_info("y", kind, [1, 16, 12, 12])],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    path = tmp_path_factory.mktemp("int8") / "net.onnx"
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("name", ["onnxruntime-int8", "openvino-int8"])
def test_their_answers_are_roughly_those_of_the_network(
    name: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rival = contest.RIVALS[name]
    for module in (rival.module, "onnx", *(["nncf"] if rival.module == "openvino" else [])):
        pytest.importorskip(module)
    exact = contest.load("onnxruntime", model, {"onnx": str(model)}, 1)[1]([X])[0]
    title, run = contest.load(name, model, {"onnx": str(model)}, 1, [X])
    assert title.startswith(name)
    assert capsys.readouterr().out == "", "the output of --json is JSON"
    error = np.abs(np.asarray(run([X])[0]) - exact).max() / np.abs(exact).max()
    assert 1e-4 < error < 0.05
    contenders = Contest([X], [exact])
    with pytest.raises(RivalError, match="wrong answer"):
        contenders.enter(title, run, 1e-5)
    contenders.enter(title, run, ALLOWED_SHARE_OF_INT8)


def test_the_verb_measures_them(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    argv = ["bench", str(model), "--onnx", str(model), "--against", "onnxruntime-int8", "--seconds", "0.1"]
    assert main([*argv, "--threads", "1", "--no-cache"]) == 0
    assert "onnxruntime-int8" in capsys.readouterr().out
