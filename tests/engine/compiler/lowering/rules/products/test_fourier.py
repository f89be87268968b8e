"""Fourier transforms as products: they agree with numpy, whatever is cut, filled in, normalised or turned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.graph.build import INPUT, built, op

RANDOM = np.random.default_rng(3)
C64 = np.dtype(np.complex64)


def check(type: str, shape: tuple[int, ...], is_complex: bool, **given: Any) -> str:
    """Hold machine code against the reference; what computed it."""
    x = RANDOM.standard_normal(shape)
    x = (x + 1j * RANDOM.standard_normal(shape)).astype(C64) if is_complex else x.astype(np.float32)
    net = built(
        INPUT, op(type, "transform", "0", "1", **given), op("pnnx.Output", "out", "1"), _0=TensorSpec(shape, x.dtype)
    )
    (wanted,) = Session(net, backend="reference").run([x])
    session = Session(net, backend="auto", cache=None, threads=1)
    session.prepare()
    (found,) = session.run([x])
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * max(1.0, float(np.abs(wanted).max())))
    return str(session.describe()["operators"][1]["kernel"])


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_of_one_axis(name: str, norm: str) -> None:
    for is_complex in (False, True) if name in ("fft", "ifft", "irfft", "hfft") else (False,):
        assert check(f"torch.fft.{name}", (3, 4, 10), is_complex, norm=norm) == "conv"
        assert check(f"torch.fft.{name}", (3, 7, 4), is_complex, dim=1, n=5, norm=norm) == "conv"
        assert check(f"torch.fft.{name}", (6,), is_complex, n=9, norm=norm) == "conv"


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2"])
def test_transforms_of_several_axes(name: str) -> None:
    for is_complex in (False, True) if name in ("fft2", "ifft2", "irfft2", "hfft2") else (False,):
        assert check(f"torch.fft.{name}", (2, 5, 6), is_complex) == "conv"
        assert check(f"torch.fft.{name}", (5, 3, 6), is_complex, dim=(2, 0), s=(4, 7), norm="ortho") == "conv"
        assert check(f"torch.fft.{name[:-1]}n", (3, 4, 5), is_complex, norm="forward") == "conv"


def test_long_transforms_are_left_to_numpy() -> None:
    assert check("torch.fft.rfft", (2, 4096), False) == "reference"
    assert check("torch.fft.rfft", (64, 512), False) == "conv"
    assert check("torch.fft.rfft", (1, 512), False) == "reference"
    assert check("torch.fft.fft", (4, 5), True, n=100_000) == "reference"


def test_a_transform_back_of_any_length_agrees_at_each() -> None:
    net = built(
        INPUT,
        op("torch.fft.rfft", "there", "0", "1"),
        op("torch.fft.irfft", "back", "1", "2"),
        op("pnnx.Output", "out", "2"),
        _0=(1, None),
    )
    reference, session = Session(net, backend="reference"), Session(net, backend="compiled", cache=None, threads=1)
    for length in (16, 20, 31, 64):
        x = RANDOM.standard_normal((1, length)).astype(np.float32)
        np.testing.assert_allclose(session.run([x])[0], reference.run([x])[0], rtol=0, atol=1e-5)
    session.close()
