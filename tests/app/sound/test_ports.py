"""Inputs of models for sounds: found by name and shape, and filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import engine
from app.errors import ConfigError
from app.sound.config import SoundConfig
from app.sound.ports import SoundPorts

MEL: dict[str, Any] = {"features": "log-mel", "n_mels": 8}


def port(name: str, shape: Sequence[int | None], dtype: Any = np.float32) -> engine.Port:
    return engine.Port(name=name, operand=name, spec=engine.TensorSpec(tuple(shape), np.dtype(dtype)), aliases=())


@pytest.mark.parametrize(
    ("shape", "config", "expected"),
    [
        ((None, None), {}, (2, 5)),
        ((1, 1, None), {}, (2, 1, 5)),
        ((None, 8, None), MEL, (2, 8, 5)),
        ((None, None, 8), MEL, (2, 5, 8)),
        ((None, 8, 8), MEL, (2, 8, 5)),
        ((None, None, None), MEL, (2, 8, 5)),
        ((None, None, None), {**MEL, "layout": "time-feature"}, (2, 5, 8)),
        ((None, 1, None, 8), MEL, (2, 1, 5, 8)),
    ],
)
def test_rows_have_the_shape_of_the_input(shape: Any, config: dict[str, Any], expected: Any) -> None:
    ports = SoundPorts([port("x", shape)], SoundConfig(**config))
    rows = np.arange(2 * 8 * 5, dtype=np.float32).reshape(2, 8, 5)
    rows = rows if config else rows[:, 0]
    found = ports.tensors(rows, [5, 5])["x"]
    assert found.shape == expected
    np.testing.assert_array_equal(np.sort(found.ravel()), np.sort(rows.ravel()))


def test_other_inputs_are_found_by_their_names() -> None:
    ports = SoundPorts(
        [port("audio", (None, None)), port("length", (None,), np.int64), port("sr", (), np.int64),
         port("attention_mask", (None, None), np.int32)],
        SoundConfig(),
    )  # fmt: skip
    found = ports.tensors(np.zeros((2, 4), np.float32), [4, 3])
    assert found["length"].tolist() == [4, 3] and found["length"].dtype == np.int64
    assert found["sr"].shape == () and found["sr"] == 16_000
    assert found["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_names_of_the_config_go_first_and_lengths_may_be_shares() -> None:
    ports = [port("n", (None,)), port("x", (None, None))]
    found = SoundPorts(ports, SoundConfig(lengths="n")).tensors(np.zeros((2, 4), np.float32), [4, 3])
    assert found["n"].tolist() == [1, 0.75] and found["x"].shape == (2, 4)


def test_integers_are_rounded_and_clipped() -> None:
    found = SoundPorts([port("x", (None, None), np.int16)], SoundConfig(scale=32768))
    rows = np.array([[0.6, -0.6, 40_000, -40_000]], np.float32)
    assert found.tensors(rows, [4])["x"].tolist() == [[1, -1, 32767, -32768]]


@pytest.mark.parametrize(
    ("ports", "config", "message"),
    [
        ([], {}, "sound.input: missing"),
        ([port("x", (None, None))], {"input": "y"}, "sound.input: found 'y', expected one of 'x'"),
        ([port("x", (None, None)), port("y", (2,))], {}, r"sound: input 'y': expected one key of .* or \[states\]"),
        ([port("x", (None, 3, None))], {}, r"found 'x' of shape \[\?, 3, \?\], expected \(N, samples\)"),
        ([port("x", (None,))], {}, r"found 'x' of shape \[\?\], expected \(N, samples\) or \(N, 1, samples\)"),
        ([port("x", (None, 9, 9))], MEL, r"expected \(N, 8, frames\) or \(N, frames, 8\)"),
    ],
)  # fmt: skip
def test_other_inputs_are_refused(ports: list[engine.Port], config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SoundPorts(ports, SoundConfig(**config))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"win_length": 401}, "win_length: found 401, expected at most n_fft, 400"),
        ({**MEL, "features": "mfcc"}, "n_mfcc: found 13, expected at most n_mels, 8"),
        ({"fmax": 8_001}, "fmax: found 8001, expected more than fmin and at most sample_rate / 2"),
        ({"fmin": 8_000}, "fmax: found 8000, expected more than fmin"),
        ({"window_s": 1, "overlap_s": 0.95}, "overlap_s: found 0.95, expected at most 0.9 of window_s"),
        ({"normalise": "mean"}, "normalise: found 'mean', which is for features"),
        ({"sample_rate": 999}, "greater than or equal to 1000"),
        ({"mean": float("nan")}, "finite number"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SoundConfig(**config)
