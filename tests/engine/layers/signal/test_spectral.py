"""Fourier transforms: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.layers.refusals import build, refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)
S = tensor()
C = tensor(3, 2, dtype="complex64")

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    ("torch.fft.fft", (S,), {}, "a 0-dim tensor cannot be transformed"),
    ("torch.fft.fft", (X,), {"n": 0}, "there are no points to transform: found 0, expected at least 1"),
    ("torch.fft.fft", (X,), {"norm": "both"}, "unknown norm: found both, expected backward, forward or ortho"),
    ("torch.fft.fft", (X,), {"dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("torch.fft.rfft", (C,), {}, "a real signal is needed: found complex64"),
    (
        "torch.fft.fft",
        (tensor(4, dtype="float16"),),
        {},
        "there is no complex dtype with such parts: found float16, expected float32 or float64",
    ),
    ("torch.fft.fft2", (V,), {}, "dim is out of range: found -2, expected -1 to 0"),
    ("torch.fft.fftn", (X,), {"s": (2, 2), "dim": (0,)}, "s and dim differ in length: found 2, expected 1"),
    ("torch.fft.fftn", (X,), {"dim": (0, 0)}, "a dim is given twice: found [0, 0]"),
    (
        "torch.fft.irfft",
        (tensor(3, 1, dtype="complex64"),),
        {},
        "there are no points to transform: found 0, expected at least 1",
    ),
    ("torch.stft", (V,), {"n_fft": 16}, "signal is too short: found 5 points, expected frames of 16"),
    (
        "torch.stft",
        (X,),
        {"n_fft": 2},
        "invalid frames: found n_fft 2, hop_length 0, win_length 2, expected positive, window within the frame",
    ),
    ("torch.stft", (tensor(100), tensor(12)), {"n_fft": 16}, "window does not fit: found [12], expected [16]"),
    (
        "torch.stft",
        (tensor(100),),
        {"n_fft": 16, "hop_length": 0},
        "invalid frames: found n_fft 16, hop_length 0, win_length 16, expected positive, window within the frame",
    ),
    (
        "torch.stft",
        (tensor(100),),
        {"n_fft": 16, "win_length": 20},
        "invalid frames: found n_fft 16, hop_length 4, win_length 20, expected positive, window within the frame",
    ),
    (
        "torch.stft",
        (tensor(100),),
        {"n_fft": 16, "pad_mode": "mirror"},
        "unknown pad_mode: found mirror, expected reflect, constant, replicate, circular",
    ),
    (
        "torch.istft",
        (tensor(9, 5),),
        {"n_fft": 16},
        "a complex spectrum or a batch of them is needed: found [9, 5] float32",
    ),
    (
        "torch.istft",
        (tensor(8, 5, dtype="complex64"),),
        {"n_fft": 16, "onesided": True},
        "spectrum does not fit n_fft: found 8, expected 9",
    ),
    (
        "torchaudio.functional.spectrogram",
        (tensor(100), tensor(16)),
        {"n_fft": 16, "normalized": "both"},
        "unknown normalisation or padding: found both and 0",
    ),
    ("aten::fft_fftshift", (X, (0, 0)), {}, "a dim is given twice: found [0, 0]"),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("suffix", ["", "2", "n"])
def test_a_signal_without_elements_is_one_of_zeros(kind: str, suffix: str) -> None:
    """Return zeros like PyTorch; numpy's irfft would read memory before such a signal."""
    for _ in range(20):  # what is read is not always there
        np.full(64, 1e300)  # and freed
        empty = np.empty((2, 3, 0), np.float64 if kind in ("rfft", "ihfft") else np.complex128)
        size = {"n": 8, "dim": -1} if not suffix else {"s": (3, 8), "dim": (-2, -1)}
        result = build(f"torch.fft.{kind}{suffix}", 1, **size).forward([empty])
        assert result.shape[:2] == (2, 3) and not result.any()


@pytest.mark.parametrize("window", ["float32", "complex64"])
def test_half_of_a_spectrum_is_that_of_real_numbers(window: str) -> None:
    signal = tensor(64, dtype="float32" if window == "complex64" else "complex64")
    options = {"n_fft": 16, "onesided": True, "return_complex": True}
    message = refusal("torch.stft", signal, tensor(16, dtype=window), **options)
    assert message == "a real signal and window are needed: found complex64"
