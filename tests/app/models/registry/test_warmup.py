"""Tests of the inputs of warm-up and of failing warm-ups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli import main
from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, write_model

ADD = elementwise("add(@0,1)", "(?,2)f32")
# Valid models that refuse zeros, or the size 1: the operator, its input, and inputs that they answer.

REFUSING_ZEROS: dict[str, tuple[list[str], str, list[Any]]] = {
    "frames of a signal": (
        ["pnnx.Input in0 0 1 0 #0=(?)f32", "Tensor.reshape r 1 1 0 9 shape=(-1,4)", "pnnx.Output out0 1 0 9"],
        "the elements do not fit",
        [list(range(8))],
    ),
    "the best five": (
        ["pnnx.Input in0 0 1 0 #0=(?)f32", "torch.topk t 1 2 0 8 9 k=5 dim=0", "pnnx.Output out0 1 0 8",
         "pnnx.Output out1 1 0 9"],
        "torch.topk",
        [list(range(9))],
    ),
    "an integer division": (
        ["pnnx.Input in0 0 1 0 #0=(2)i32", "pnnx.Input in1 0 1 1 #1=(2)i32",
         "torch.div d 2 1 0 1 9 rounding_mode=floor $input=0 $other=1", "pnnx.Output out0 1 0 9"],
        "integer division by zero",
        [[7, 9], [2, 3]],
    ),
}  # fmt: skip
# Its sizes are the file's own, so no request can be answered.
NEVER = ["pnnx.Input in0 0 1 0 #0=(2,2)f32", "Tensor.reshape bad 1 1 0 9 shape=(3,3)", "pnnx.Output out0 1 0 9"]


def row(client: Client, name: str) -> Any:
    return client.get(f"/models/{name}").json()


def states(client: Client) -> dict[str, str]:
    return {each["name"]: each["state"] for each in client.get("/models").json()["models"]}


def write_warmup(store: Path, name: str, **arrays: Any) -> None:
    np.savez(store / name / "1" / "warmup.npz", **arrays)


@pytest.mark.parametrize("case", REFUSING_ZEROS)
def test_a_model_that_refuses_zeros_is_ready_and_has_a_remark(tmp_path: Path, case: str) -> None:
    lines, why, values = REFUSING_ZEROS[case]
    write_model(tmp_path, "valid", lines)
    with serving(tmp_path) as client:
        assert client.get("/health/ready").status_code == client.get("/v2/models/valid/ready").status_code == 200
        found = row(client, "valid")
        answer = client.post("/infer", json={"inputs": {f"in{i}": value for i, value in enumerate(values)}})
        assert client.get("/openapi.json").status_code == 200
    assert (found["state"], found["reason"]) == ("ready", None)
    remark = found["versions"][0]["remark"]
    assert remark.startswith("the warm-up on zeros failed: ") and why in remark
    assert answer.status_code == 200


def test_setting_strict_warmup_refuses_a_model_that_refuses_zeros(tmp_path: Path) -> None:
    write_model(tmp_path, "valid", REFUSING_ZEROS["frames of a signal"][0])
    with serving(tmp_path, strict_warmup=True) as client:
        assert client.get("/health/ready").status_code == 503
        reason = row(client, "valid")["reason"]
    assert "the warm-up on zeros failed" in reason and reason.endswith("(strict_warmup)")


def test_sizes_of_the_file_that_do_not_fit_are_a_failure(tmp_path: Path) -> None:
    write_model(tmp_path, "never", NEVER)
    with serving(tmp_path) as client:
        assert client.get("/health/ready").status_code == 503
        assert "bad (Tensor.reshape): the elements do not fit" in row(client, "never")["reason"]


def test_a_model_is_warmed_up_with_the_inputs_of_its_folder(tmp_path: Path) -> None:
    write_model(tmp_path, "open", elementwise("add(@0,1)", "(?,?)f32"))
    write_warmup(tmp_path, "open", in0=np.float32([[1, 2, 3]]))
    write_model(tmp_path, "frames", REFUSING_ZEROS["frames of a signal"][0])
    write_warmup(tmp_path, "frames", in0=np.zeros(8, np.float32))
    with serving(tmp_path) as client:
        for name, shape in (("open", (1, 3)), ("frames", (8,))):
            model = client.plane.store.version(name).model
            assert model is not None and model.inline_policy.run_s is not None and model.remark is None
            assert {key: array.shape for key, array in (model.example_inputs() or {}).items()} == {"in0": shape}


IN0 = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": IN0}, "unknown input: found 'x', expected 'in0'"),
        ({}, "no array for 'in0', found none"),
        ({"in0": IN0, "y": IN0}, "unknown input: found 'y', expected 'in0'"),
        ({"in0": IN0[:, :1]}, "input 'in0': found [1, 1] float32, expected [?, 2] float32"),
        ({"in0": IN0[0]}, "input 'in0': found [2] float32, expected [?, 2] float32"),
        ({"in0": IN0.astype(np.float64)}, "input 'in0': found [1, 2] float64, expected [?, 2] float32"),
        ({"in0": np.array([[None, 1]])}, "cannot be read as an .npz file without pickles"),
        (b"no archive", "cannot be read as an .npz file without pickles"),
        (b"", "cannot be read as an .npz file without pickles"),
    ],
)
def test_inputs_of_a_folder_that_do_not_fit_are_a_failure_that_names_them(
    tmp_path: Path, arrays: dict[str, Any] | bytes, message: str
) -> None:
    write_model(tmp_path, "one", ADD)
    if isinstance(arrays, bytes):
        (tmp_path / "one" / "1" / "warmup.npz").write_bytes(arrays)
    else:
        write_warmup(tmp_path, "one", **arrays)
    with serving(tmp_path) as client:
        reason = row(client, "one")["reason"]
    assert reason.startswith(f"version 1: warmup.npz: {message}")


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_warm_up_file_that_is_none_is_a_failure(tmp_path: Path, is_folder: bool) -> None:
    write_model(tmp_path, "one", ADD)
    path = tmp_path / "one" / "1" / "warmup.npz"
    path.mkdir() if is_folder else path.symlink_to("gone.npz")
    with serving(tmp_path) as client:
        reason = row(client, "one")["reason"]
    assert reason.startswith("version 1: warmup.npz: cannot be read: ") and str(tmp_path) not in reason


def test_a_warm_up_file_with_numbers_for_texts_is_a_failure_that_calls_them_strings(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    from tests.engine.onnx_files.models import model, node, save, value

    folder = tmp_path / "texts/1"
    folder.mkdir(parents=True)
    nodes = [node("StringConcat", ["who", "who"], ["said"])]
    save(folder, model(nodes, [value("who", ["n"], 8)], [value("said", ["n"], 8)]))
    np.savez(folder / "warmup.npz", who=np.ones(2, np.float32))
    with serving(tmp_path) as client:
        reason = client.get("/models/texts").json()["reason"]
    assert "input 'who': found [2] float32, expected [n] string" in reason


def test_inputs_of_a_folder_that_the_model_refuses_are_a_failure(tmp_path: Path) -> None:
    write_model(tmp_path, "frames", REFUSING_ZEROS["frames of a signal"][0])
    write_warmup(tmp_path, "frames", in0=np.zeros(7, np.float32))
    with serving(tmp_path) as client:
        assert row(client, "frames")["reason"].startswith("version 1: warmup.npz: r (Tensor.reshape): ")


def test_a_check_and_a_compilation_agree_with_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, (lines, *_) in REFUSING_ZEROS.items():
        write_model(tmp_path, name.replace(" ", "-"), lines)
    names = [path.name for path in tmp_path.iterdir()]
    assert main(["check", "--store", str(tmp_path), *names]) == 0
    assert main(["compile", "--store", str(tmp_path), *names]) == 0
    assert "error" not in capsys.readouterr().err
    write_model(tmp_path, "never", NEVER)
    assert [main([verb, "--store", str(tmp_path), "never"]) for verb in ("check", "compile")] == [1, 1]


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        ((), "failed to load: broken"),
        (("good",), None),
        (("good", "broken"), "required models: 'broken' is failed"),
        (("good", "missing"), "required models: 'missing' is not in the store"),
    ],
)
def test_setting_required_says_which_models_readiness_waits_for(
    tmp_path: Path, required: tuple[str, ...], expected: str | None
) -> None:
    write_model(tmp_path, "good", ADD)
    write_model(tmp_path, "broken", NEVER)
    with serving(tmp_path, required=required) as client:
        plain, v2 = client.get("/health/ready"), client.get("/v2/health/ready")
        assert plain.status_code == v2.status_code == (200 if expected is None else 503)
        assert expected is None or expected == v2.json()["reason"]
        assert client.get("/v2/models/good/ready").status_code == client.infer("good", [[1, 1]]).status_code == 200
        assert client.get("/v2/models/broken/ready").status_code == client.infer("broken", [[1, 1]]).status_code == 503


def test_a_required_model_that_is_unloaded_makes_the_server_unready(tmp_path: Path) -> None:
    write_model(tmp_path, "good", ADD)
    write_model(tmp_path, "other", ADD)
    with serving(tmp_path, required=("good",)) as client:
        assert client.post("/v2/repository/models/other/unload", json={}).status_code == 200
        assert client.get("/health/ready").status_code == 200
        assert client.post("/v2/repository/models/good/unload", json={}).status_code == 200
        assert "'good' is unloaded" in client.get("/health/ready").text
