"""Tests of `pnnx-serve import` for archives of TorchServe and weights of transformers, which PyTorch exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exporter
from app.cli import main
from tests.app.cli.test_import import archive, imported
from tests.app.client import serving
from tests.app.text_models import ANSWERS, DATA

torch = pytest.importorskip("torch", reason="needs the extra export")
pytest.importorskip("pnnx", reason="needs the extra export")

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, stride=16), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).mean((2, 3)))
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("code") / "small_net.py"
    path.write_text(CODE)
    torch.manual_seed(0)
    return exporter.load_source(str(path))


def served(store: Path, x: np.ndarray) -> np.ndarray:
    """Return what the model of a store answers to a tensor."""
    with serving(store) as client:
        answer = client.post("/models/animals/infer", json={"inputs": x.tolist(), "outputs": True}).json()
    (output,) = answer["outputs"].values()
    return np.array(output["data"], np.float32).reshape(output["shape"])


def check(store: Path, net: Any, size: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, size, size)).astype(np.float32)
    np.testing.assert_allclose(served(store, x), net(torch.from_numpy(x)).detach().numpy(), atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("is_traced", [True, False])
def test_a_script_in_an_archive_is_exported_for_the_size_of_its_handler(
    tmp_path: Path, net: Any, is_traced: bool
) -> None:
    made = torch.jit.trace(net, torch.zeros(1, 3, 224, 224)) if is_traced else torch.jit.script(net)
    made.save(str(tmp_path / "net.pt"))
    source = archive(
        tmp_path / "x.mar", "net.pt", "image_classifier",
        {"net.pt": (tmp_path / "net.pt").read_bytes(), "index_to_name.json": b'{"0": "cat", "1": "dog"}'},
    )  # fmt: skip
    config = imported(source, tmp_path / "store")
    assert (config["task"], config["labels"]) == ("classification", ["cat", "dog"])
    check(tmp_path / "store", net, 224)


def test_code_in_an_archive_runs_only_if_allowed(tmp_path: Path, net: Any, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(net.state_dict(), tmp_path / "net.pth")
    files = {"net.pth": (tmp_path / "net.pth").read_bytes(), "model.py": CODE.encode(), "handle.py": b"no python"}
    source = archive(tmp_path / "x.mar", "net.pth", "handle.py:handle", files, modelFile="model.py")
    flags = ("--shape", "1,3,64,64")
    assert main(["import", str(source), "--store", str(tmp_path / "store"), *flags]) != 0
    assert "--run-code: missing" in capsys.readouterr().err
    assert imported(source, tmp_path / "store", *flags, "--run-code") == {}
    assert "handler 'handle' is not imported" in capsys.readouterr().out
    check(tmp_path / "store", net, 64)


@pytest.mark.parametrize(
    ("weights", "message"),
    [({"other": torch.zeros(1)}, "the weights are those of another model"), (None, "no weights of PyTorch")],
)
def test_weights_that_do_not_fit_are_refused(
    tmp_path: Path, weights: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(weights, tmp_path / "net.pth") if weights else (tmp_path / "net.pth").write_bytes(b"no archive")
    files = {"net.pth": (tmp_path / "net.pth").read_bytes(), "other.py": CODE.encode()}
    source = archive(tmp_path / "x.mar", "net.pth", "image_classifier", files, modelFile="other.py")
    assert main(["import", str(source), "--store", str(tmp_path / "store"), "--run-code"]) != 0
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("kind", ["BertModel", "RobertaForSequenceClassification", "DistilBertForTokenClassification"])
def test_weights_of_transformers_are_exported(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    torch.manual_seed(0)
    known = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json"))
    size = {"vocab_size": known.get_vocab_size(), "max_position_embeddings": 64}
    small = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
        "initializer_range": 1.0,
    }  # fmt: skip
    if kind.startswith("Distil"):
        small = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24, "initializer_range": 1.0}
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**size, **small, num_labels=3)).eval()
    folder = tmp_path / "tiny"
    model.save_pretrained(folder)
    known.save(str(folder / "tokenizer.json"))
    config = imported(folder, tmp_path / "store")
    assert "was exported to ONNX" in capsys.readouterr().out

    text = ANSWERS["sentences"][0]
    ids = torch.tensor([known.encode(text).ids])
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        expected = model(**given)[0][0]
    with serving(tmp_path / "store") as client:
        found = client.post("/models/tiny/infer", json={"text": text}).json()["predictions"]
    if config["task"] == "embedding":
        vector = torch.nn.functional.normalize(expected.mean(0), dim=0)
        np.testing.assert_allclose(found["embedding"], vector, atol=1e-5)
    elif config["task"] == "text-classification":
        assert config["text"]["max_tokens"] == 62
        best = torch.softmax(expected, 0).max()
        assert found[0]["probability"] == pytest.approx(float(best), abs=1e-5)
    else:
        assert config["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_models_that_generate_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    folder = tmp_path / "gpt"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}')
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "tokenizer.json").write_bytes((DATA / "tokenizer.json").read_bytes())
    assert main(["import", str(folder), "--store", str(tmp_path / "store")]) != 0
    assert "models that generate text are not supported" in capsys.readouterr().err
