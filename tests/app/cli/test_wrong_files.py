"""Files that are no models, given to every verb: what they are and what to do, in one line, and status 1."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from tests.app.cli.conftest import BIAS, LINEAR, WEIGHT, write

VERBS = {
    "check": [],
    "run": ["--input", "x.npy"],
    "graph": [],
    "compare": ["--reference", "x.npz"],
    "bench": [],
    "compile": [],
}
ONNX = b"\x08\x07\x12\x07pytorch\x1a\x052.6.0:\x10\x0a\x04\x0a\x00"


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, b"x")
    return buffer.getvalue()


def alone(name: str, content: bytes) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / name).write_bytes(content)
        return name

    return make


def pair(change: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        text = write(folder / "pair", LINEAR, fc__weight=WEIGHT, fc__bias=BIAS)
        weights = text.with_name(text.name.replace(".param", ".bin"))
        for path, content in zip((text, weights), change(text.read_bytes(), weights.read_bytes()), strict=True):
            path.write_bytes(content)
        return str(text)

    return make


def folder_of_pairs(folder: Path) -> str:
    path = write(folder / "pair", LINEAR, fc__weight=WEIGHT, fc__bias=BIAS)
    path.with_name("another.pnnx.param").write_bytes(path.read_bytes())
    return "pair"


WRONG: dict[str, tuple[Callable[[Path], str], str]] = {
    "onnx of another name": (alone("m.bin", ONNX), "'m.bin' is an ONNX model: its name has to end in .onnx"),
    "torchscript": (alone("m.pt", archive("m/code/a.py", "m/data.pkl")), "'m.pt' is a TorchScript model"),
    "weights of torch": (alone("m.pth", archive("m/data.pkl")), "PyTorch's weights, without the model"),
    "weights of a pair": (alone("m.pnnx.bin", archive("fc.weight")), "name the .pnnx.param file beside it"),
    "compressed": (alone("m.param.gz", gzip.compress(b"7767517")), "a compressed file: unpack it first"),
    "text": (alone("m.txt", b"hello"), "no model"),
    "nothing": (alone("m", b""), "an empty file"),
    "a pair's text of another name": (alone("m.pnnx", b"7767517\n1 1\n"), "its name has to end in .param"),
    "numbers": (alone("m.npy", b"\x93NUMPY\x01\x00"), "a numpy array"),
    "a folder of several": (folder_of_pairs, "'pair' is a folder: name the .pnnx.param file in it, such as 'pair/"),
    "a missing file": (lambda folder: "none.onnx", "none.onnx"),
    "no name": (lambda folder: "", "no model is named"),
    "swapped": (pair(lambda text, weights: (weights, text)), "not a PNNX file: found a zip archive"),
    "compressed text": (pair(lambda t, w: (gzip.compress(t), w)), "not a PNNX file: found a compressed file"),
    "compressed weights": (pair(lambda t, w: (t, gzip.compress(w))), "not a zip archive: found a compressed file"),
    "text twice": (pair(lambda t, w: (t, t)), "not a zip archive: found the text of a pair"),
    "onnx for weights": (pair(lambda t, w: (t, ONNX)), "not a zip archive: found an ONNX model"),
    "onnx for text": (pair(lambda t, w: (ONNX + b"\xff", w)), "not a PNNX file: found an ONNX model"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("make", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_told_in_one_line(
    make: Callable[[Path], str],
    message: str,
    verb: str,
    tmp_path: Path,
    store: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save("x.npy", np.zeros((1, 3), np.float32))
    np.savez("x.npz", in_0=np.zeros((1, 3), np.float32))
    assert main([verb, make(tmp_path), *VERBS[verb]]) == 1
    captured = capsys.readouterr()
    said = (captured.out + captured.err).splitlines()
    assert len(said) == 1
    assert message in said[0]
    assert "internal error" not in said[0]
