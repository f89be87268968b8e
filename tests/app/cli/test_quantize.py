"""``quantize``: samples in, the next version of the model out; whether int8 is faster is not checked."""

from __future__ import annotations

import errno
import gc
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import engine
from app.cli import main
from app.cli.arguments import models, samples
from app.cli.output import explain
from app.settings import Settings
from engine.quantisation import measurement, selection
from engine.quantisation.schemes import BlockWeights

DIGITS = Path(__file__).parents[3] / "model_store" / "digits"


@pytest.fixture
def int8_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measurement.measure_layers
    monkeypatch.setattr(selection, "measure_layers", lambda *given: [
        each._replace(float_us=10.0, time_us=5.0) for each in measured(*given)])  # fmt: skip
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
    (("linear", "--recorded", "5", "--output", "out"), "expected those of a server with record_requests"),
    (("linear", "--samples", "few_labels.npz", "--output", "out"), "the index of a class for each of 4 items"),
    (("linear", "--samples", "high_label.npz", "--output", "out", "--keep", "0"), "a label is not a class: found 9"),
    (("digits", "--samples", "named", "--output", "out"), "found the class 'cat', expected its index or one of"),
    (("digits", "--samples", "numbered", "--output", "out"), "--samples: found the class 10, expected 0 to 9"),
    (("linear", "--samples", "lables.npz", "--output", "out"), "found arrays 'in0', 'lables', expected 'in0'"),
    (("linear", "--samples", "good.npy", "--output", "good.npy/out"), "good.npy' is not a folder that can be written"),
    (("difference", "--samples", "uneven.npz", "--output", "out"), "expected the same number for each input"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_with_the_reason(
    argv: tuple[str, ...],
    message: str,
    store: Path,
    int8_is_faster: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "wide.npy", np.ones((2, 4, 5, 6), np.float32))
    np.save(tmp_path / "empty.npy", np.ones((0, 3), np.float32))
    np.save(tmp_path / "good.npy", np.ones((2, 3), np.float32))
    items = np.random.default_rng(1).random((4, 3), np.float32)
    for name, labels in {"few_labels": [1, 0], "high_label": [1, 0, 0, 9]}.items():
        np.savez(tmp_path / f"{name}.npz", in0=items, labels=np.array(labels))
    shutil.copytree(DIGITS, store / "digits")
    (tmp_path / "named" / "cat").mkdir(parents=True)
    shutil.copytree(DIGITS / "examples", tmp_path / "numbered" / "10")
    np.savez(tmp_path / "lables.npz", in0=items, lables=np.arange(4))
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


def test_an_empty_folder_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable of a shell gives one; the files would go to a temporary folder."""
    with pytest.raises(SystemExit):
        main(["quantize", "linear", "--samples", "x.npy", "--output", ""])
    assert "argument --output: found '', expected a folder" in capsys.readouterr().err


def test_labelled_arrays_tell_the_accuracy_before_and_after(
    store: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = np.random.default_rng(1).random((9, 1, 3), np.float32)
    graph = engine.load(store / "linear" / "1" / "model.pnnx.param")
    classes = [int(engine.Session(graph, cache=None).run([each])[0].argmax()) for each in inputs]
    labels = [classes[0], *((each + 1) % 2 for each in classes[1:])]  # the first label only is what the model finds
    np.savez(tmp_path / "samples.npz", in0=inputs, labels=np.array(labels))
    argv = ("linear", "--samples", "samples.npz", "--output", "out", "--keep", "0")
    _, text, _ = quantized(*argv, "--json", capsys=capsys)
    found = json.loads(text)["accuracy"]
    assert (found["samples"], found["before"]) == (9, pytest.approx(1 / 9))
    assert json.loads((tmp_path / "out" / "quantisation.json").read_text())["accuracy"] == found
    _, text, _ = quantized(*argv, capsys=capsys)
    assert "accuracy 11.11 % -> " in text and "on 9 labelled samples" in text and "95 % confidence" in text


def test_a_folder_for_each_class_holds_labelled_pictures(
    digits: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for picture in (digits / "examples").glob("digit-*.png"):
        folder = tmp_path / "pictures" / picture.name.split("-")[1]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, folder)
    _, text, _ = quantized("digits", "--samples", "pictures", "--keep", "99%", "--json", capsys=capsys)
    found = json.loads(text)
    assert (found["samples"], found["accuracy"]["samples"], found["accuracy"]["before"]) == (20, 20, 1.0)
    assert (digits / "2" / "quantisation.json").exists()


def test_what_a_layer_would_cost_in_float32_is_told(
    store: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "samples.npy", np.random.default_rng(1).random((5, 3), np.float32))
    argv = ("linear", "--samples", "samples.npy", "--output", "out", "--keep", "0")
    _, text, _ = quantized(*argv, capsys=capsys)
    assert "+5 µs, -100.0 %" in text
    (layer,) = json.loads(quantized(*argv, "--json", capsys=capsys)[1])["layers"]
    assert (layer["restore_us"], layer["restore_share"]) == (5.0, 1.0)


def test_recorded_requests_are_samples_by_item(
    store: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "recorded" / "linear" / "1"
    folder.mkdir(parents=True)
    for number, rows in enumerate((1, 4, 2)):
        np.savez(folder / f"{number}.npz", in0=np.random.default_rng(number).random((rows, 3), np.float32))
    argv = ("linear", "--record-dir", "recorded", "--output", "out", "--keep", "0", "--json")
    assert json.loads(quantized(*argv, "--recorded", "2", capsys=capsys)[1])["samples"] == 6
    assert json.loads(quantized(*argv, "--recorded", "100", capsys=capsys)[1])["samples"] == 7


def test_the_newest_version_that_is_not_quantised_is_taken(
    digits: Path, int8_is_faster: None, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("digits", "--samples", str(digits / "examples"), "--keep", "99%")
    quantized(*argv, capsys=capsys)
    status, text, error = quantized(*argv, capsys=capsys)
    assert (status, error) == (0, "")
    assert "digits version 1 · 6 layers" in text and "written to model_store/digits/3" in text
    shutil.copytree(digits / "1", digits / "4")
    found = json.loads(quantized(*argv, "--json", capsys=capsys)[1])
    assert (found["version"], found["folder"]) == (4, "model_store/digits/5")
    status, _, error = quantized(str(digits / "5" / "model.pnnx.param"), *argv[1:], "--output", "o", capsys=capsys)
    assert status == 1 and "the model is quantised already" in error


def test_requests_recorded_for_quantised_versions_count_for_their_source(
    digits: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(digits / "1", digits / "2")
    quantized("digits", "--samples", str(digits / "examples"), "--keep", "99%", capsys=capsys)
    random = np.random.default_rng(1)
    for order, version in enumerate((1, 3, 2, 3)):
        folder = tmp_path / "recorded" / "digits" / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{order}.npz", in0=random.random((order + 1, 1, 16, 16), np.float32))
    argv = ("digits", "--record-dir", "recorded", "--output", "out", "--keep", "0", "--json")
    for count, rows in ((1, 4), (2, 4 + 3), (10, 4 + 3 + 2)):
        found = json.loads(quantized(*argv, "--recorded", str(count), capsys=capsys)[1])
        assert (found["version"], found["samples"]) == (2, rows)


def test_requests_with_values_that_are_not_finite_are_left_out(
    store: Path, int8_is_faster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "recorded" / "linear" / "1"
    folder.mkdir(parents=True)
    for number, rows in enumerate(([[1, 2, 3], [np.nan, 1, 1]], [[1, np.inf, 2]], [[3, 2, 1]])):
        np.savez(folder / f"{number}.npz", in0=np.array(rows, np.float32))
    argv = ("linear", "--record-dir", "recorded", "--output", "out", "--keep", "0")
    status, text, _ = quantized(*argv, "--recorded", "9", capsys=capsys)
    assert status == 0 and "1 layer · 2 samples, 2 left out: values are not finite\n" in text
    assert json.loads((tmp_path / "out" / "quantisation.json").read_text())["skipped"] == 2
    (folder / "2.npz").unlink()
    status, _, error = quantized(*argv, "--recorded", "1", capsys=capsys)
    assert status == 1 and "every sample makes values that are not finite" in error


def test_recorded_requests_are_read_when_they_are_needed(store: Path, tmp_path: Path) -> None:
    settings = Settings(store=store, record_dir=tmp_path / "recorded")
    found, version, model = models.load("linear", settings)
    folder = tmp_path / "recorded" / "linear" / "1"
    folder.mkdir(parents=True)
    rows = np.random.default_rng(1).random((6, 3), np.float32)
    for number in range(3):
        np.savez(folder / f"{number}.npz", in0=rows[2 * number : 2 * number + 2])
    with tempfile.TemporaryFile() as copy:
        read = samples.read_recorded(3, found, version, model, settings, copy)
        shutil.rmtree(folder)
        for _ in range(2):  # samples are run several times
            for index in reversed(range(6)):
                np.testing.assert_array_equal(read[index][0], rows[index : index + 1].reshape(read[index][0].shape))
    assert not any(isinstance(each, np.ndarray) for item in read._items for each in gc.get_referents(item))


def test_recorded_requests_that_a_server_removes_are_left_out(
    store: Path,
    int8_is_faster: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "recorded" / "linear" / "1"
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.npz" for number in range(3)]
    for path in paths[1:]:
        np.savez(path, in0=np.random.default_rng(1).random((2, 3), np.float32))
    monkeypatch.setattr(samples, "recorded_files", lambda folder: paths)
    read = samples.files.read_archive

    def read_and_remove(path: str, settings: Settings) -> object:
        found = read(path, settings)
        Path(path).unlink()
        return found

    monkeypatch.setattr(samples.files, "read_archive", read_and_remove)
    argv = ("linear", "--record-dir", "recorded", "--recorded", "3", "--output", "out", "--keep", "0", "--json")
    assert json.loads(quantized(*argv, capsys=capsys)[1])["samples"] == 4


def test_files_of_the_version_are_copied_with_it(
    digits: Path, int8_is_faster: None, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(digits / "1" / "warmup.npz", in0=np.zeros((1, 1, 16, 16), np.float32))
    quantized("digits", "--samples", str(digits / "examples"), "--keep", "99%", capsys=capsys)
    assert {path.name for path in (digits / "2").iterdir()} == {
        "model.pnnx.param", "model.pnnx.bin", "quantisation.json", "warmup.npz",
    }  # fmt: skip


def test_weights_are_quantised_without_samples(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("linear", "--precision", "int8-weights", "--output", "out")
    monkeypatch.setattr(BlockWeights, "saved_bytes", lambda *_: 5_000_000)
    status, text, _ = quantized(*argv, capsys=capsys)
    assert status == 0 and "linear · 1 layer · made-up inputs" in text
    assert "1 of 1 layer in int8-weights: " in text and "a run, weights 5 MB smaller\n" in text
    types = {op.type for op in engine.load(tmp_path / "out" / "model.pnnx.param").operators}
    assert "engine.BlockLinear" in types
    report = json.loads((tmp_path / "out" / "quantisation.json").read_text())
    assert (report["kept"], report["layers"][0]["precision"]) == (None, "int8-weights")
    assert models.load("out", Settings(cache=False))[2].precision == "int8-weights"


def test_a_model_whose_weights_are_small_is_left_alone(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selection, "_times", lambda *given: (1.0, 1.0))
    status, text, _ = quantized("linear", "--precision", "int4-weights", "--output", "out", capsys=capsys)
    assert status == 1 and "with int4-weights the network is not faster, and no layer a megabyte smaller.\n" in text


def test_a_full_disk_is_told_with_the_file_that_could_not_be_written() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/tmp/model.pnnx.bin", None, "store/model.pnnx.bin")
    assert explain(full) == ("store/model.pnnx.bin: No space left on device", 1)


def test_int8_needs_samples(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = quantized("linear", "--output", "out", capsys=capsys)
    assert status != 0 and "--precision int8: expected --samples or --recorded" in error


def test_the_precisions_are_those_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["quantize", "--help"])
    assert f"{{{','.join(selection.PRECISIONS)}}}" in capsys.readouterr().out


def test_products_of_bfloat16_need_no_samples_and_the_table_tells_their_times(
    digits: Path, int8_is_faster: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selection, "has_bfloat16", lambda: True)
    status, text, _ = quantized("digits", "--precision", "bf16", capsys=capsys)
    assert status == 0 and "6 of 6 layers in bf16: 2 ms -> 1 ms a run" in text
    titles = ["precision", "float32", "bf16", "SQNR", "error", "restore", "saved", "layer"]
    assert text.splitlines()[2].split() == titles
    written = engine.load(digits / "2" / "model.pnnx.param")
    assert sum(op.params.get("precision") == "bf16" for op in written.operators) == 6
    status, _, error = quantized("digits", "--precision", "auto", capsys=capsys)
    assert status != 0 and "--precision auto: expected --samples or --recorded" in error
    monkeypatch.setattr(selection, "has_bfloat16", lambda: False)
    shutil.rmtree(digits / "2")
    status, _, error = quantized("digits", "--precision", "bf16", capsys=capsys)
    assert status != 0 and "this processor has no products of bfloat16" in error and not (digits / "2").exists()
