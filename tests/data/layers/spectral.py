"""Samples of Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from record import Sample

G = torch.Generator().manual_seed(3)
X = torch.randn(3, 4, 6, generator=G)
D = X.double()
C = torch.complex(torch.randn(3, 4, 6, generator=G), torch.randn(3, 4, 6, generator=G))
CD = C.to(torch.complex128)
WAVE = torch.randn(2, 100, generator=G)
WINDOW = torch.hann_window(16)
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL = ("rfft", "ihfft")


def operand(name: str) -> torch.Tensor:
    return X if name.startswith(REAL) else C


def along_one(name: str) -> Callable[..., object]:
    f = getattr(torch.fft, name)
    return lambda x: (f(x), f(x, 5), f(x, 9, 1), f(x, dim=0, norm="ortho"), f(x, norm="forward"))


def along_two(name: str) -> Callable[..., object]:
    f = getattr(torch.fft, name)
    return lambda x: (f(x), f(x, (3, 5)), f(x, dim=(0, 1), norm="ortho"), f(x, norm="forward"))


def along_all(name: str) -> Callable[..., object]:
    f = getattr(torch.fft, name)
    return lambda x: (f(x), f(x, (3, 5)), f(x, dim=(0, 2), norm="ortho"), f(x, (4, 6), (1, 2), "forward"))


SAMPLES = [
    *[Sample(name, along_one(name), (operand(name),)) for name in ONE],
    *[Sample(f"{name}2", along_two(f"{name}2"), (operand(name),)) for name in ONE],
    *[Sample(f"{name}n", along_all(f"{name}n"), (operand(name),)) for name in ONE],
    Sample(
        "double",
        lambda x, c: (
            torch.fft.fft(x),
            torch.fft.rfft(x),
            torch.fft.irfft(c),
            torch.fft.hfft(c),
            torch.fft.fftn(x),
            torch.fft.irfft2(c),
            torch.fft.ihfftn(x),
            torch.fft.hfft2(c),
        ),
        (D, CD),
        rtol=1e-10,
        atol=1e-10,
    ),
    Sample(
        "of_integers_and_reals",
        lambda i, x: (torch.fft.fft(i), torch.fft.rfft(i), torch.fft.ifft(x), torch.fft.irfft(x), torch.fft.hfft(x)),
        ((X * 10).long(), X),
    ),
    Sample(
        "dynamic",
        lambda x: (torch.fft.rfft(x), torch.fft.irfft(torch.fft.rfft(x), x.size(2))),
        (X,),
        [(X[:, :, :5],)],
        dynamic=(X[:, :, :5],),
    ),
    Sample(
        "fftshift",
        lambda x: (
            torch.fft.fftshift(x),
            torch.fft.ifftshift(x),
            torch.fft.fftshift(x, 1),
            torch.fft.ifftshift(x, (0, 2)),
        ),
        (X[..., :5],),
    ),
    Sample(
        "fftfreq",
        lambda x: (torch.fft.fftfreq(x.size(2), 0.5), torch.fft.rfftfreq(x.size(2))),
        (X,),
        [(X[:, :, :5],)],
        dynamic=(X[:, :, :5],),
    ),
    Sample(
        "stft",
        lambda x: (torch.stft(x, 16, return_complex=True), torch.stft(x, 16, 5, 12, center=False, return_complex=True)),
        (WAVE,),
    ),
    Sample(
        "stft_window",
        lambda x, w: torch.stft(x, 16, 4, window=w, return_complex=True, normalized=True, pad_mode="constant"),
        (WAVE, WINDOW),
    ),
    Sample(
        "stft_short_window",
        lambda x, w: torch.stft(x, 20, 6, 16, window=w, return_complex=True, onesided=False),
        (WAVE, WINDOW),
    ),
    Sample(
        "stft_real_view",
        lambda x, w: torch.view_as_real(torch.stft(x[0], 16, 4, window=w, return_complex=True)),
        (WAVE, WINDOW),
    ),
    Sample(
        "stft_complex",
        lambda x, w: torch.stft(torch.complex(x, x * 2), 16, 4, window=w, return_complex=True),
        (WAVE, WINDOW),
    ),
    Sample(
        "stft_dynamic",
        lambda x, w: torch.stft(x, 16, 4, window=w, return_complex=True),
        (WAVE, WINDOW),
        [(WAVE[:1, :80], WINDOW)],
        dynamic=(WAVE[:1, :80], WINDOW),
    ),
    Sample(
        "istft",
        lambda z, w: (
            torch.istft(z, 16, 4, window=w),
            torch.istft(z, 16, 4, window=w, length=90),
            torch.istft(z, 16, 4, normalized=True),
        ),
        (torch.stft(WAVE, 16, 4, window=WINDOW, return_complex=True), WINDOW),
        atol=1e-5,
    ),
    Sample(
        "istft_length",
        lambda z, w: (
            torch.istft(z, 16, 4, window=w, normalized=True, length=z.size(2) * 3),
            torch.istft(z[:, :, :20], 16, None, 16, w, True, True, None, z.size(2) + 40),
            torch.istft(z, 16, 4, normalized=True, length=z.size(2) * 3),
        ),
        (torch.stft(WAVE, 16, 4, window=WINDOW, return_complex=True), WINDOW),
        atol=1e-5,
    ),
    Sample(
        "istft_no_center",
        lambda z: torch.istft(z, 16, 4, center=False),
        (torch.stft(WAVE, 16, 4, window=torch.ones(16), center=False, return_complex=True),),
        atol=1e-5,
    ),
    Sample(
        "istft_two_sided",
        lambda z, w: torch.istft(z, 16, 4, window=w, onesided=False),
        (torch.stft(WAVE, 16, 4, window=WINDOW, onesided=False, return_complex=True), WINDOW),
        atol=1e-5,
    ),
    Sample(
        "istft_complex",
        lambda z, w: torch.istft(z, 16, 4, window=w, onesided=False, return_complex=True),
        (torch.stft(WAVE, 16, 4, window=WINDOW, onesided=False, return_complex=True), WINDOW),
        atol=1e-5,
    ),
]
