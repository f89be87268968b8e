"""``compare``: the operator where the numbers leave a reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from tests.app.cli.conftest import BIAS, WEIGHT, write

X = np.array([[1, 2, 3]], np.float32)
Y = X @ WEIGHT.T + BIAS
LOGARITHM = [
    "pnnx.Input in0 0 1 0 #0=(1,3)f32",
    "nn.Identity same 1 1 0 1 #0=(1,3)f32 #1=(1,3)f32",
    "pnnx.Expression log 1 1 1 2 expr=log(@0) #1=(1,3)f32 #2=(1,3)f32",
    "pnnx.Output out0 1 0 2 #2=(1,3)f32",
]


def reference(**arrays: np.ndarray) -> str:
    np.savez("ref.npz", **{key.replace("__", "/"): array for key, array in arrays.items()})
    return "ref.npz"


def error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("pnnx-serve: error: ").removesuffix("\n")


def test_equal_numbers_are_no_divergence(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["compare", "linear", "--reference", reference(in_0=X, out_0=Y, operand__1=Y), "--backend", "reference"]
    assert main(call) == 0
    assert capsys.readouterr().out.splitlines() == [
        "linear · reference back end · 2 recorded values",
        "",
        "#  operator  type       operand   max error  of scale",
        "1  fc        nn.Linear  1                 0         0  ok",
        "1  fc        nn.Linear  1 (out0)          0         0  ok",
        "",
        "no divergence",
    ]


def test_a_divergence_is_named_and_ends_with_status_1(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "linear", "--reference", reference(in_0=X, operand__1=Y + 1)]) == 1
    *_, verdict = capsys.readouterr().out.splitlines()
    assert verdict == "first divergence: fc (nn.Linear), operand 1: max error 1, 1.9 % of the largest value"


def test_tolerances_are_flags(store: Path) -> None:
    call = ["compare", "linear", "--reference", reference(in_0=X, out_0=Y + 1)]
    assert [main([*call, "--rtol", "0.1"]), main([*call, "--atol", "2"]), main(call)] == [0, 0, 1]


def test_operators_before_the_divergence_that_were_not_recorded_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path / "log", LOGARITHM))
    assert main(["compare", path, "--reference", reference(in_0=X, out_0=X)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "not recorded before it, so the cause may be there: same"


def test_a_nan_is_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "log", LOGARITHM))
    assert main(["compare", path, "--reference", reference(in_0=-X, out_0=X)]) == 1
    *_, verdict, suspects, nan = capsys.readouterr().out.splitlines()
    assert verdict.endswith("3 of 3 elements are NaN or infinite in only one of the two")
    assert nan == ("first NaN: made by log (pnnx.Expression), operand 2: 3 of 3 elements; the reference has none there")


def test_a_shape_that_is_off_is_said_in_the_table(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "linear", "--reference", reference(in_0=X, out_0=Y[0])]) == 1
    assert "diverges: shape [1, 2], reference [2]" in capsys.readouterr().out


def test_a_reference_that_does_not_fit_is_one_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "linear", "--reference", reference(in_0=X, conv1=Y)]) == 1
    assert "the reference has an unknown key: found 'conv1'" in error(capsys)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("ref.npz", None, "ref.npz: No such file or directory"),
    ("ref.npz", b"", "'ref.npz' is damaged or not an .npz file: "),
    ("ref.npz", b"PK\3\4" + bytes(40), "'ref.npz' is damaged or not an .npz file: "),
    ("ref.npz", b"hello, world", "'ref.npz' is damaged or not an .npz file: "),
])  # fmt: skip
def test_a_file_that_is_no_recording_is_one_line(
    name: str, content: bytes | None, message: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    assert main(["compare", "linear", "--reference", name]) == 1
    assert error(capsys).startswith(message)


def test_a_single_array_is_no_recording(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", X)
    assert main(["compare", "linear", "--reference", "x.npy"]) == 1
    assert error(capsys) == "'x.npy' is an .npy file, expected an .npz file with named arrays"


def test_objects_are_not_unpickled(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("ref.npz", in_0=np.array([object()], dtype=object))
    assert main(["compare", "linear", "--reference", "ref.npz"]) == 1
    assert "Object arrays cannot be loaded" in error(capsys)


@pytest.mark.parametrize("flags", [["--rtol", "-1"], ["--atol", "nan"], []])
def test_a_wrong_call_is_status_2(flags: list[str], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["compare", "linear", *flags]
    if flags:
        assert main([*call, "--reference", "ref.npz"]) == 2
        assert "expected a number that is not negative" in error(capsys)
    else:
        with pytest.raises(SystemExit):
            main(call)
