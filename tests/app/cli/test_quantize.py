"""``quantize``: samples in, the next version of the model out; whether int8 is faster is not checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import engine
from app.cli import main
from engine.quantisation import measurement, selection

DIGITS = Path(__file__).parents[3] / "model_store" / "digits"


@pytest.fixture
def int8_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measurement.measure_layers
    monkeypatch.setattr(selection, "measure_layers", lambda *given: [
        each._replace(float_us=10.0, int8_us=5.0) for each in measured(*given)])  # fmt: skip
    monkeypatch.setattr(selection, "_times", lambda *given: (2.0, 1.0))


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A store with the model digits."""
    shutil.copytree(DIGITS, tmp_path / "model_store" / "digits")
    return tmp_path / "model_store" / "digits"


def quantized(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Status, stdout, stderr."""
    status = main(["quantize", *argv, "--threads", "1"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_pictures_make_the_next_version_of_the_model_with_the_same_answers(
    digits: Path, int8_is_faster: None, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text, error = quantized("digits", "--samples", str(digits / "examples"), "--keep", "99%", capsys=capsys)
    assert (status, error) == (0, "")
    assert "digits · 6 layers · 20 samples" in text
    assert "in int8: 2 ms -> 1 ms a run" in text
    assert "written to model_store/digits/2" in text
    picture = str(digits / "examples" / "digit-7-a.png")
    assert main(["run", "digits", "--image", picture, "--no-cache"]) == 0
    assert "7" in capsys.readouterr().out


def test_arrays_by_input_name_and_a_folder_for_the_pair(
    store: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "samples.npz", in0=np.random.default_rng(1).random((8, 1, 3), np.float32))
    status, text, _ = quantized(
        "linear", "--samples", "samples.npz", "--output", "out", "--keep", "0.9", "--json", capsys=capsys
    )
    told = json.loads(text)
    assert (status, told["folder"], told["samples"]) == (0, "out", 8)
    assert [layer["precision"] for layer in told["layers"]] == ["int8"]
    types = {op.type for op in engine.load(tmp_path / "out" / "model.pnnx.param").operators}
    assert {"QuantizeLinear", "DequantizeLinear"} <= types


def test_rows_of_a_batch_are_samples_too(
    store: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "samples.npy", np.random.default_rng(1).random((5, 3), np.float32))
    _, text, _ = quantized(
        "linear", "--samples", "samples.npy", "--output", "out", "--keep", "0", "--json", capsys=capsys
    )
    assert json.loads(text)["samples"] == 5


def test_nothing_is_written_where_nothing_is_faster(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selection, "_times", lambda *given: (1.0, 1.0))
    np.save(tmp_path / "samples.npy", np.ones((5, 3), np.float32))
    status, text, _ = quantized("linear", "--samples", "samples.npy", "--output", "out", capsys=capsys)
    assert status == 1 and "Nothing was written" in text and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("argv", "message"), [
    (("linear", "--samples", "missing.npz"), "missing.npz"),
    (("linear", "--samples", "wide.npy", "--output", "out"), "found shape [2, 4, 5, 6] for 'in0'"),
    (("linear", "--samples", "empty.npy", "--output", "out"), "there are no samples, expected at least one"),
    (("linear", "--samples", "strange.npz", "--output", "out"), "the model has 'in0'"),
    (("linear/1/model.pnnx.param", "--samples", "good.npy"), "is not a folder of the store: expected --output"),
    (("difference", "--samples", "uneven.npz", "--output", "out"), "expected the same number for each input"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_with_the_reason(
    argv: tuple[str, ...], message: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "wide.npy", np.ones((2, 4, 5, 6), np.float32))
    np.save(tmp_path / "empty.npy", np.ones((0, 3), np.float32))
    np.save(tmp_path / "good.npy", np.ones((2, 3), np.float32))
    np.savez(tmp_path / "strange.npz", other=np.ones(3), further=np.ones(3))
    np.savez(
        tmp_path / "uneven.npz", pnnx_input_0=np.ones((4, 2), np.float32), pnnx_input_1=np.ones((6, 2), np.float32)
    )
    path = str(store / argv[0]) if "/" in argv[0] else argv[0]
    status, _, error = quantized(path, *argv[1:], capsys=capsys)
    assert status != 0 and message in error


@pytest.mark.parametrize("share", ["101%", "-1", "much", "1.5"])
def test_a_share_is_a_number_between_0_and_1_or_per_cent(share: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["quantize", "linear", "--samples", "x.npy", f"--keep={share}"])
    assert "expected a share such as 99.9% or 0.999" in capsys.readouterr().err
