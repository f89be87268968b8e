"""check() lists everything that is wrong at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import engine
from tests.engine.graph.build import F32, INPUT, graph, op


def saved(folder: Path, *operators: object, **shapes: tuple[int, ...]) -> tuple[Path, Path]:
    paths = folder / "net.pnnx.param", folder / "net.pnnx.bin"
    graph(*operators, **shapes).save(*paths)  # type: ignore[arg-type]
    return paths


def test_a_sound_model_has_no_problems(tmp_path: Path) -> None:
    paths = saved(tmp_path, INPUT, op("nn.ReLU", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=(1, 3))
    assert engine.check(*paths) == []


def test_unknown_types_and_bad_parameters_are_listed_together(tmp_path: Path) -> None:
    paths = saved(
        tmp_path,
        INPUT,
        op("nn.Relu", "a", "0", "1"),
        op("nn.LeakyReLU", "b", "1", "2", slope=1),
        op("nn.LeakyReLU", "c", "2", "3", negative_slope="steep"),
        op("pnnx.Output", "out", "3"),
    )
    assert [str(problem) for problem in engine.check(*paths)] == [
        "no layer for 1 operator type: 'nn.Relu' (a; did you mean 'nn.ReLU'?)",
        "b (nn.LeakyReLU): unknown parameter 'slope', expected input, negative_slope",
        "c (nn.LeakyReLU): parameter 'negative_slope': wrong kind of value: found 'steep', expected float",
    ]


def test_damaged_weights_are_found_by_their_checksum(tmp_path: Path) -> None:
    weight = np.arange(3, dtype=F32)
    paths = saved(tmp_path, op("pnnx.Attribute", "w", "", "1", data=weight), op("pnnx.Output", "out", "1"))
    content = bytearray(paths[1].read_bytes())
    content[content.index(weight.tobytes())] ^= 1
    paths[1].write_bytes(content)
    problems = engine.check(*paths)
    assert len(problems) == 1
    assert isinstance(problems[0], engine.WeightsError)
    assert "w.data" in str(problems[0])


def test_contradicting_annotations_are_warnings(tmp_path: Path) -> None:
    relu, out = op("nn.ReLU", "relu", "0", "1"), op("pnnx.Output", "out", "1")
    problems = engine.check(*saved(tmp_path, INPUT, relu, out, _0=(1, 3), _1=(1, 4)))
    assert [type(problem) for problem in problems] == [engine.Mismatch]


def test_a_strict_check_makes_them_errors_with_what_was_found_and_expected(tmp_path: Path) -> None:
    lines = [INPUT, op("nn.ReLU", "a", "0", "1"), op("nn.ReLU", "b", "1", "2"), op("pnnx.Output", "out", "2")]
    problems = engine.check(*saved(tmp_path, *lines, _0=(1, 3), _1=(1, 4), _2=(2, 3)), strict=True)
    assert [type(problem) for problem in problems] == [engine.GraphError] * 2
    cause = "perhaps a slice on an open dimension is dropped; export it with a bound taken from the size"
    assert [str(problem) for problem in problems] == [
        "a (nn.ReLU): operand '1' contradicts the file: found [1, 3] float32, expected [1, 4] float32 as annotated; "
        + cause,
        "b (nn.ReLU): operand '2' contradicts the file: found [1, 3] float32, expected [2, 3] float32 as annotated; "
        + cause,
    ]
