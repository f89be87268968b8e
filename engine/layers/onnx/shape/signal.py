"""Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import check_fits
from engine.layers.onnx.operands.constants import needed, whole_number
from engine.layers.operands.axes import checked_axis, replaced
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, tensor
from engine.layers.operands.views import sliding
from engine.layers.signal.fourier import never_empty
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import Array, Dim, DType, TensorSpec


def _complex(x: Array) -> Array:
    """Convert a last axis of real, or real and imaginary, parts to numbers."""
    wide = widened(x)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(x: Array, dtype: DType) -> Array:
    return cast(np.stack([x.real, x.imag], axis=-1), dtype)


@register("DFT", positional=("input", "dft_length", "axis"))
class DFT(Layer):
    """Discrete Fourier transform along an axis.

    Shapes:
        input (..., L, ..., 1 or 2), the last axis real or real and imaginary parts  ->  (..., dft_length, ..., 2);
        onesided the first half; onesided and inverse give real numbers back, (..., dft_length, ..., 1)
    """

    inverse: bool = False
    onesided: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec, dft_length: Any = None, axis: Any = None) -> TensorSpec:
        spec = tensor(input, "input", FLOATING)
        check_fits(spec.rank > 1 and spec.shape[-1] in (1, 2, None), "input", spec.shape, "a last axis of 1 or 2")
        length, place = self.length_and_axis(spec, dft_length, axis)
        is_real = self.inverse and self.onesided
        shape = (None,) * spec.rank if place is None else replaced(spec.shape, place, self._count(length))
        return TensorSpec((*shape[:-1], 1 if is_real else 2), spec.dtype)

    def forward(self, input: Array, dft_length: Any = None, axis: Any = None) -> Array:
        spec = TensorSpec(input.shape, input.dtype)
        self.infer(spec, dft_length, axis)
        length, place = self.length_and_axis(spec, dft_length, axis)
        if length is None or place is None:
            raise ShapeError("the length or the axis is missing")
        check_size(replaced(input.shape, place, length), np.dtype(np.complex128))
        x = never_empty(_complex(input), (place,))
        if self.inverse and self.onesided:
            return cast(np.fft.irfft(x, length, place)[..., None], input.dtype)
        if self.inverse:
            return _parts(np.fft.ifft(x, length, place), input.dtype)
        y = np.fft.fft(x, length, place)
        half = y.take(np.arange(length // 2 + 1), place) if self.onesided else y
        return _parts(half, input.dtype)

    def _count(self, length: Dim) -> Dim:
        if length is None or not self.onesided or self.inverse:
            return length
        return length // 2 + 1

    def length_and_axis(self, spec: TensorSpec, dft_length: Any, axis: Any) -> tuple[Dim, int | None]:
        """Return the length of the transform and its axis; None if known only at run time."""
        first = None if dft_length is None else whole_number(dft_length, "dft_length")
        given = None if axis is None else whole_number(axis, "axis")
        if (dft_length is not None and first is None) or (axis is not None and given is None):
            return None, None
        if first is not None and given is None and self._is_axis(spec, first):
            first, given = None, first
        place = self._axis(spec.rank, self._default if given is None else given)
        length = first if first is not None else self._natural(spec.shape[place])
        if length is not None and length < 1:
            raise ShapeError("dft_length must be positive", found=length)
        return length, place

    @property
    def _default(self) -> int:
        return -2

    def _natural(self, size: Dim) -> Dim:
        if size is None or not (self.inverse and self.onesided):
            return size
        return 2 * (size - 1)

    def _is_axis(self, spec: TensorSpec, number: int) -> bool:
        """Return whether a lone number is the axis: pnnx's converter drops an omitted length."""
        if self.annotations.are_named:
            return False
        noted = self.annotations.outputs[0] if self.annotations.outputs else None
        if number < 0:
            return True
        if noted is None or noted.rank != spec.rank:
            return False
        place = self._axis(spec.rank, self._default)
        as_length = replaced(spec.shape, place, self._count(number))
        return noted.shape[:-1] != as_length[:-1]

    def _axis(self, rank: int, axis: int) -> int:
        place = checked_axis(axis, rank)
        if place == rank - 1:
            raise ShapeError("the last axis holds the parts of numbers", found=axis, expected=f"0 to {rank - 2}")
        return place


@register("STFT", positional=("signal", "frame_step", "window", "frame_length"))
class STFT(Layer):
    """Fourier transforms of overlapping frames.

    Shapes:
        signal (B, L, 1 or 2), window (frame_length,)  ->  (B, frames, bins, 2); onesided frame_length // 2 + 1 bins
    """

    onesided: bool = True
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, signal: TensorSpec, frame_step: Any, window: Any = None, frame_length: Any = None) -> TensorSpec:
        spec = tensor(signal, "signal", FLOATING)
        check_fits(spec.rank == 3 and spec.shape[2] in (1, 2, None), "signal", spec.shape, "[B, L, 1 or 2]")
        window, frame_length = self.window_and_length(window, frame_length)
        step = whole_number(frame_step, "frame_step")
        length = window.shape[0] if isinstance(window, (TensorSpec, np.ndarray)) else whole_number(frame_length, "")
        if step is None or length is None or spec.shape[1] is None:
            return TensorSpec((spec.shape[0], None, None, 2), spec.dtype)
        if step < 1 or not 1 <= length <= spec.shape[1]:
            found = f"frames of {length} every {step} of {spec.shape[1]}"
            raise ShapeError("frames do not fit the signal", found=found)
        bins = length // 2 + 1 if self.onesided else length
        return TensorSpec((spec.shape[0], (spec.shape[1] - length) // step + 1, bins, 2), spec.dtype)

    def forward(self, signal: Array, frame_step: Any, window: Any = None, frame_length: Any = None) -> Array:
        window, frame_length = self.window_and_length(window, frame_length)
        spec = self.infer(TensorSpec(signal.shape, signal.dtype), frame_step, window, frame_length)
        step = needed(whole_number(frame_step, "frame_step"), "frame_step")
        length = len(window) if window is not None else needed(whole_number(frame_length, "frame_length"), "")
        x = _complex(signal)
        frames = sliding(x, (length,), (1,))[:, ::step]
        if window is not None:
            frames = frames * widened(window)
        y = np.fft.fft(frames, axis=-1)
        return _parts(y[..., : spec.shape[2]], signal.dtype)

    def window_and_length(self, window: Any, frame_length: Any) -> tuple[Any, Any]:
        """Return window and frame length; if operands are unnamed, a lone integer is the length."""
        if window is None and frame_length is None:
            raise ShapeError("neither window nor frame_length is given")
        if self.annotations.are_named:
            return window, frame_length
        is_vector = isinstance(window, (TensorSpec, np.ndarray)) and window.dtype.kind == "f" and len(window.shape) == 1
        return (None, window) if window is not None and not is_vector else (window, frame_length)
