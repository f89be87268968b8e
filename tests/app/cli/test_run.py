"""``run``: one inference on files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.cli import main
from app.cli.run import statistics
from app.images.palette import generated
from tests.app.cli.conftest import BIAS, WEIGHT
from tests.app.cli.test_main import Terminal
from tests.app.picture_models import heads, write_enlarger, write_segmenter
from tests.app.sample_models import write_detector, write_model


def save(path: str, *values: float, shape: tuple[int, ...] = (1, 3)) -> str:
    np.save(path, np.array(values, np.float32).reshape(shape))
    return path


def error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("pnnx-serve: error: ").removesuffix("\n")


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    """A dark and a bright picture."""
    for name, value in (("dark.png", 10), ("bright.png", 250)):
        Image.new("L", (8, 8), value).save(tmp_path / name)
    return ["dark.png", "bright.png"]


def test_outputs_are_described_and_saved(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "linear", "--input", save("x.npy", 1, 2, 3), "--output", "y.npz"]) == 0
    saved = dict(np.load("y.npz"))
    np.testing.assert_array_equal(saved["out0"], [WEIGHT @ [1, 2, 3] + BIAS])
    first, *rest = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"linear · compiled back end · [\d.]+ (µs|ms|s)", first)
    assert rest == ["out0  [1, 2] float32  min 24  max 52  mean 38"]


def test_a_model_is_found_by_its_path(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "model_store/linear/1/model.pnnx.param"
    assert main(["run", path, "--input", save("x.npy", 0, 0, 0)]) == 0
    assert capsys.readouterr().out.startswith(f"{path} · compiled back end")


@pytest.mark.parametrize(
    ("folder", "name"),
    [("elsewhere/linear", "linear"), ("elsewhere/linear/1", "elsewhere/linear/1/model.pnnx.param"),
     ("flat", "flat/m.param")],
)  # fmt: skip
def test_a_folder_is_looked_into(
    store: Path, tmp_path: Path, folder: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.rename(tmp_path / "elsewhere")
    (tmp_path / "flat").mkdir()
    for kind in ("param", "bin"):
        source = tmp_path / "elsewhere" / "linear" / "1" / f"model.pnnx.{kind}"
        (tmp_path / "flat" / f"m.{kind}").write_bytes(source.read_bytes())
    assert main(["run", folder, "--input", save("x.npy", 0, 0, 0)]) == 0
    assert capsys.readouterr().out.startswith(f"{name} · compiled back end")


def test_a_folder_that_is_a_model_has_its_config(store: Path, tmp_path: Path, pictures: list[str]) -> None:
    store.rename(tmp_path / "elsewhere")
    assert main(["run", "elsewhere/brightness", "--image", *pictures]) == 0


def test_a_model_of_the_store_goes_before_a_folder_of_its_name(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(store / "difference" / "1", tmp_path / "linear")
    assert main(["run", "linear", "--input", save("x.npy", 0, 0, 0)]) == 0
    assert capsys.readouterr().out.startswith("linear · ")


def test_a_folder_of_pictures_is_a_batch_in_the_order_of_their_names(
    store: Path, tmp_path: Path, pictures: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "notes.txt").write_text("not a picture")
    for name in pictures:
        (tmp_path / name).rename(tmp_path / "pictures" / name)
    assert main(["run", "brightness", "--image", "pictures"]) == 0
    named = [line.split(":")[0].split("  ")[0] for line in capsys.readouterr().out.splitlines() if "pictures/" in line]
    assert [Path(line).name for line in named] == ["bright.png", "dark.png"]
    (tmp_path / "empty").mkdir()
    assert main(["run", "brightness", "--image", "empty"]) == 2
    assert error(capsys) == "'empty' is a folder without pictures"


def test_compiling_is_told_from_running(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert main(["run", "linear", "--no-cache", "--input", save("x.npy", 1, 2, 3)]) == 0
    told = [terminal.getvalue().find(f"{doing} linear") for doing in ("loading", "compiling", "running")]
    assert -1 < told[0] < told[1] < told[2]


@pytest.mark.parametrize(("shape", "compiles"), [((1, 3), True), ((5, 3), False)])
def test_only_what_the_run_needs_is_compiled_for_it(
    store: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], compiles: bool
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("app.models.model.Model.compile", lambda *args, **more: asked.append(args))
    assert main(["run", "linear", "--input", save("x.npy", *[0] * (shape[0] * shape[1]), shape=shape)]) == 0
    assert len(asked) == compiles


def test_a_store_is_named_by_its_flag(store: Path, tmp_path: Path) -> None:
    store.rename(tmp_path / "elsewhere")
    assert main(["run", "linear", "--store", "elsewhere", "--input", save("x.npy", 0, 0, 0)]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.npy", "b.npy"],
        ["in1=b.npy", "in0=a.npy"],
        ["in1=b.npy", "a.npy"],
        ["pnnx_input_1=b.npy", "pnnx_input_0=a.npy"],
        ["named.npz"],
        ["ordered.npz"],
    ],
)
def test_inputs_are_given_in_order_or_by_name(arguments: list[str], store: Path) -> None:
    a, b = np.array([5, 7], np.float32), np.array([1, 2], np.float32)
    np.save("a.npy", a)
    np.save("b.npy", b)
    np.savez("named.npz", in1=b, in0=a)
    np.savez("ordered.npz", first=a, second=b)
    assert main(["run", "difference", "--output", "y.npz", "--input", *arguments]) == 0
    np.testing.assert_array_equal(np.load("y.npz")["out0"], [4, 5])


def test_pictures_give_predictions(store: Path, pictures: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "brightness", "--image", *pictures]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split("  probability")[0] for line in lines] == [
        "dark.png:", "  1. dark  ", "  2. bright", "", "bright.png:", "  1. bright", "  2. dark  ",
    ]  # fmt: skip


def test_what_was_found_is_drawn(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_detector(store)
    Image.new("RGB", (80, 80)).save("black.png")
    assert main(["run", "boxes", "--image", "black.png", "--draw", "found.png"]) == 0
    drawing = Image.open("found.png")
    assert (drawing.format, drawing.size) == ("PNG", (80, 80))
    assert drawing.getpixel((25, 79)) == generated(1)
    assert capsys.readouterr().out.endswith("black.png:\n  1. thing  score 0.9  box [20.0, 40.0, 40.0, 80.0]\n")


def test_a_picture_made_by_the_model_is_saved(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_enlarger(store)
    Image.new("RGB", (3, 2), (255, 0, 0)).save("red.png")
    assert main(["run", "double", "--image", "red.png", "--draw", "double.png"]) == 0
    assert np.asarray(Image.open("double.png")).tolist() == [[[0, 255, 255]] * 6] * 4
    assert capsys.readouterr().out.endswith("red.png:\n  a picture of 6x4\n")


def test_a_text_in_a_picture_is_printed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letters = np.float32([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    write_model(store, "reader", *heads((8, 16), letters), config='task = "text-recognition"\nlabels = ["a", "b"]\n')
    Image.new("RGB", (16, 8)).save("line.png")
    assert main(["run", "reader", "--image", "line.png"]) == 0
    assert capsys.readouterr().out.endswith("line.png:\n  text ab  score 0.8\n")


def test_the_classes_of_a_segmentation_are_listed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_segmenter(store)
    Image.new("RGB", (10, 10), (0, 0, 255)).save("blue.png")
    assert main(["run", "colours", "--image", "blue.png"]) == 0
    assert capsys.readouterr().out.endswith("blue.png:\n  1. blue  area 100  fraction 1\n")


def test_top_k_limits_the_predictions(store: Path, pictures: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "brightness", "--top-k", "1", "--image", pictures[0]]) == 0
    assert "  2. " not in capsys.readouterr().out


def test_tensors_of_a_picture_model_give_predictions_too(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "brightness", "--input", save("x.npy", 1, 1, 1, 1, shape=(1, 1, 2, 2))]) == 0
    assert "item 1:\n  1. bright" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["linear"], "the model needs --input in0.npy ([1, 3] float32)"),
        (
            ["difference", "--input", "two.npy"],
            "the model needs --input in1.npy ([2] float32)",
        ),
        (
            ["brightness"],
            "the model needs --input in0.npy ([1, 1, 2, 2] float32), or --image FILE for 'in0'",
        ),
        (["linear", "--input", "x.npy", "x.npy"], "'x.npy' is an extra input: the model has 'in0'"),
        (["linear", "--input", "in0=x.npy", "in0=x.npy"], "input 'in0' is given twice"),
    ],
    ids=["nothing", "one of two", "picture", "too many", "twice"],
)
def test_inputs_that_are_missing_or_too_many_are_a_wrong_call(
    argv: list[str], message: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("x.npy", 1, 2, 3)
    save("two.npy", 1, 2, shape=(2,))
    assert main(["run", *argv]) == 2
    assert error(capsys) == message


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nothing"], "no model 'nothing': the store 'model_store' has 'brightness', 'difference', 'linear'"),
        (["linaer"], "no model 'linaer' (did you mean 'linear'?): "),
        (["no.pnnx.param"], "no file 'no.pnnx.param', expected a .pnnx.param file or the name of a model in the store"),
        (["linear", "--store", "void"], "the store 'void' cannot be read: No such file or directory"),
        (["linear", "--input", "no.npy"], "no.npy: No such file or directory"),
        (["linear", "--input", "im0=x.npy"], "im0=x.npy: No such file or directory"),
        (["linear", "--input", "bad.npy"], "'bad.npy' does not begin with the magic bytes of an .npy file"),
        (["linear", "--input", "bad.npz"], "'bad.npz' is damaged or not an .npz file"),
        (["linear", "--input", "wide.npy"], "input 'in0': wrong shape: found [1, 4], expected"),
        (["linear", "--image", "bad.npy"], "input 'in0' takes no pictures"),
        (["brightness", "--image", "bad.npy"], "'bad.npy' is not in a known format"),
        (["brightness", "--draw", "y.png", "--image", "grey.png"], "its task 'classification' cannot draw a picture"),
        (["linear", "--top-k", "3", "--input", "x.npy"], "unknown parameter 'top_k'"),
        (["linear", "--input", "x.npy", "--output", "void/y.npz"], "void/y.npz: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_work_is_said_in_one_line(
    argv: list[str], message: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("x.npy", 1, 2, 3)
    save("wide.npy", 1, 2, 3, 4, shape=(1, 4))
    Image.new("L", (2, 2)).save("grey.png")
    for name in ("bad.npy", "bad.npz"):
        Path(name).write_bytes(b"neither array nor picture")
    assert main(["run", *argv]) == 1
    text = error(capsys)
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[1, 2], [3, 6]], np.int64), "[2, 2] int64  min 1  max 6  mean 3"),
        (
            np.array([1.5, np.nan, np.inf, -np.inf], np.float32),
            "[4] float32  min 1.5  max 1.5  mean 1.5  NaN 1  infinite 2",
        ),
        (np.zeros((0, 3), np.float32), "[0, 3] float32  empty"),
        (np.array(True), "[] bool  min 1  max 1  mean 1"),
        (np.array([3 + 4j], np.complex64), "[1] complex64  magnitudes: min 5  max 5  mean 5"),
    ],
    ids=["integers", "not finite", "empty", "scalar", "complex"],
)
def test_statistics_are_of_the_finite_values(array: np.ndarray, expected: str) -> None:
    assert statistics(array) == expected


@pytest.mark.parametrize(
    ("returned", "shown"),
    [("float(outputs['out0'].sum())", "76.0"), ("{'sum': outputs['out0'].sum(), 'of': [2]}", '{"sum":76.0,"of":[2]}')],
)
def test_the_answer_of_a_hook_is_shown_as_json(
    store: Path, capsys: pytest.CaptureFixture[str], returned: str, shown: str
) -> None:
    Path("model_store/linear/1/hooks.py").write_text(f"def postprocess(outputs):\n    return {returned}\n")
    run = ["run", "linear", "--input", save("x.npy", 1, 2, 3), "--plugin", "hooks.py"]
    assert main(run) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"  {shown}"
    assert main([*run, "--json"]) == 0
    assert f'"predictions":[{shown}]' in capsys.readouterr().out
