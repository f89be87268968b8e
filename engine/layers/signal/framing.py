"""Division of a signal into overlapping windowed frames, and its reconstruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.views import sliding
from engine.limits import check_scratch, check_size
from engine.promotion import cast
from engine.tensor import Array, Dim, DType, Shape

_PADDINGS: Final = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Frames of n_fft points, hop points apart.

    Args:
        n_fft: points in a frame.
        hop: points from the start of a frame to that of the next.
        window_length: points of the window, which is centred in the frame.
        center: whether the signal is padded by half a frame on both sides, so that frame i is centred at i * hop.
        pad_mode: reflect, constant (zeros), replicate or circular.

    Raises:
        ParameterError: lengths that are not positive or do not fit each other, or an unknown pad_mode.
    """

    n_fft: int
    hop: int
    window_length: int
    center: bool
    pad_mode: str = "reflect"

    def __post_init__(self) -> None:
        if self.n_fft < 1 or self.hop < 1 or not 1 <= self.window_length <= self.n_fft:
            found = f"n_fft {self.n_fft}, hop_length {self.hop}, win_length {self.window_length}"
            raise ParameterError("invalid frames", found=found, expected="positive, window within the frame")
        if self.pad_mode not in _PADDINGS:
            raise ParameterError("unknown pad_mode", found=self.pad_mode, expected=", ".join(_PADDINGS))

    @property
    def margin(self) -> int:
        """Points added on both sides."""
        return self.n_fft // 2 if self.center else 0

    def count(self, length: Dim) -> Dim:
        """Return the number of frames of a signal.

        Raises:
            ShapeError: for a signal too short for one, or for the reflection of its ends.
        """
        if length is None:
            return None
        if length + 2 * self.margin < self.n_fft or (self.pad_mode == "reflect" and self.margin >= max(length, 1)):
            raise ShapeError("signal is too short", found=f"{length} points", expected=f"frames of {self.n_fft}")
        return 1 + (length + 2 * self.margin - self.n_fft) // self.hop

    def check_window(self, shape: Shape) -> None:
        """Refuse a window of another length.

        Raises:
            ShapeError: naming both lengths.
        """
        check_shape(shape, (self.window_length,), "window does not fit")

    def window(self, given: Array | None, dtype: DType) -> Array:
        """Return the window over a whole frame; ones if none is given.

        Raises:
            ShapeError: when it does not have window_length points.
        """
        points = np.ones(self.window_length, dtype) if given is None else cast(given, dtype)
        self.check_window(points.shape)
        left = (self.n_fft - self.window_length) // 2
        return np.pad(points, (left, self.n_fft - self.window_length - left))

    def cut(self, signals: Array, window: Array) -> Array:
        """Compute (batch, length) signals -> (batch, frames, n_fft), multiplied by the window."""
        self.count(signals.shape[-1])
        padded = np.pad(signals, ((0, 0), (self.margin, self.margin)), _PADDINGS[self.pad_mode])  # type: ignore[call-overload]
        frames = sliding(padded, (self.n_fft,), (-1,))[:, :: self.hop]
        return np.asarray(frames * window)

    def join(self, frames: Array, window: Array, length: int | None) -> Array:
        """Compute (batch, frames, n_fft) -> (batch, length) by overlap-add, divided by the sum of squared windows.

        Without length the signal ends half a frame after the last frame's centre.

        Raises:
            ShapeError: when the windows leave a gap between the frames.
        """
        count = frames.shape[1]
        total = self.added(frames * window)
        share = self.added(np.broadcast_to(window * window, (1, count, self.n_fft)))
        full = self.n_fft + self.hop * (count - 1)
        start = self.margin
        end = full - self.margin if length is None else start + length
        weights = share[:, start : min(end, full)]
        if weights.size and np.abs(weights).min() < 1e-11:
            raise ShapeError("windows leave a gap between the frames", found=f"hop_length {self.hop}")
        check_size((len(frames), max(end - start, 0)), frames.dtype)
        signal = total[:, start : min(end, full)] / weights
        return np.pad(signal, ((0, 0), (0, max(end - full, 0))))

    def added(self, frames: Array) -> Array:
        """Return the sum of the frames, overlapped at hop points."""
        batch, count, _ = frames.shape
        parts = -(-self.n_fft // self.hop)
        check_scratch((batch, count, parts, self.hop), frames.dtype, frames.nbytes, "the signal of all frames")
        filled = np.pad(frames, ((0, 0), (0, 0), (0, parts * self.hop - self.n_fft)))
        blocks = filled.reshape(batch, count, parts, self.hop)
        total = np.zeros((batch, count + parts - 1, self.hop), frames.dtype)
        for part in cancellable(range(parts)):
            total[:, part : part + count] += blocks[:, :, part]
        return total.reshape(batch, (count + parts - 1) * self.hop)
