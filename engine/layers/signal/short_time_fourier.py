"""Short-time Fourier transforms: spectra of overlapping frames of a signal, and the inverse."""

from __future__ import annotations

import math

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.elementwise.complex import complex_dtype
from engine.layers.operands.axes import sizes
from engine.layers.operands.spatial import LARGEST
from engine.layers.signal.framing import Framing
from engine.limits import check_scratch
from engine.promotion import real_dtype
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, dtype_name, format_shape


class _ShortTime(Layer):
    """Base of layers between signals and spectra."""

    n_fft: int
    hop_length: int | None = None
    win_length: int | None = None
    center: bool = True
    pad_mode: str = "reflect"
    onesided: bool | None = None

    def __post_init__(self) -> None:
        _ = self.framing

    @property
    def framing(self) -> Framing:
        return Framing(
            n_fft=self.n_fft,
            hop=self.n_fft // 4 if self.hop_length is None else self.hop_length,
            window_length=self.n_fft if self.win_length is None else self.win_length,
            center=self.center,
            pad_mode=self.pad_mode,
        )

    def _check_real(self, is_half: bool, *operands: TensorSpec | None) -> None:
        """Refuse complex numbers if only half of the symmetric spectrum is kept."""
        for each in operands:
            if is_half and each is not None and each.dtype.kind == "c":
                raise ShapeError("a real signal and window are needed", found=dtype_name(each.dtype))

    def places(self, is_half: bool) -> int:
        return self.n_fft // 2 + 1 if is_half else self.n_fft

    def _spectrum(self, signals: Array, window: Array | None, is_half: bool) -> Array:
        """Compute (batch, length) -> (batch, bins, frames)."""
        window_dtype = signals.dtype if window is None else np.promote_types(window.dtype, real_dtype(signals.dtype))
        frames = self.framing.cut(signals, self.framing.window(window, window_dtype))
        spectrum = np.fft.rfft(frames) if is_half else np.fft.fft(frames)
        return spectrum.swapaxes(-1, -2).astype(complex_dtype(signals.dtype), copy=False)

    def _signals(self, spectrum: Array, window: Array | None, is_real: bool, length: int | None) -> Array:
        """Compute (batch, bins, frames) -> (batch, length); a real signal from the first half of the bins."""
        frames = spectrum.swapaxes(-1, -2)
        pieces = np.fft.irfft(frames[..., : self.n_fft // 2 + 1], self.n_fft) if is_real else np.fft.ifft(frames)
        return self.framing.join(pieces, self.framing.window(window, real_dtype(spectrum.dtype)), length)

    def _signal_length(self, frames: Dim, length: int | None) -> Dim:
        if frames == 0:
            raise ShapeError("a spectrum without frames has no signal", found="0 frames", expected="1 or more")
        if length is not None or frames is None:
            return length
        return self.n_fft + self.framing.hop * (frames - 1) - 2 * self.framing.margin


@register("torch.stft", ignored=("align_to_window",))
class Stft(_ShortTime):
    """The Fourier transforms of all windowed frames of a signal.

    Shapes:
        input (length) or (batch, length), window (win_length) -> (batch, n_fft//2 + 1 or n_fft, frames), with a last
        axis of 2 unless return_complex.
    Raises:
        ShapeError: signal shorter than a frame, or window of another length.
    """

    normalized: bool = False
    return_complex: bool | None = None

    def infer(self, input: TensorSpec, window: TensorSpec | None = None) -> TensorSpec:
        if input.rank not in (1, 2):
            raise ShapeError("a signal or a batch of them is needed", found=format_shape(input.shape))
        if window is not None:
            self.framing.check_window(window.shape)
        self._check_real(self.is_half(input.dtype), input, window)
        frames = self.framing.count(input.shape[-1])
        shape = (*input.shape[:-1], self.places(self.is_half(input.dtype)), frames)
        dtype = complex_dtype(input.dtype)
        return TensorSpec(shape, dtype) if self.gives_complex else TensorSpec((*shape, 2), real_dtype(dtype))

    def forward(self, input: Array, window: Array | None = None) -> Array:
        self.infer(
            TensorSpec(input.shape, input.dtype), None if window is None else TensorSpec(window.shape, window.dtype)
        )
        spectrum = self._spectrum(np.atleast_2d(input), window, self.is_half(input.dtype))
        if self.normalized:
            spectrum = spectrum * real_dtype(spectrum.dtype).type(1 / math.sqrt(self.n_fft))
        result = spectrum.reshape(*input.shape[:-1], *spectrum.shape[1:])
        return result if self.gives_complex else np.stack([result.real, result.imag], -1)

    @property
    def gives_complex(self) -> bool:
        return self.return_complex is not False

    def is_half(self, dtype: DType) -> bool:
        return dtype.kind != "c" if self.onesided is None else self.onesided


@register("torch.istft")
class Istft(_ShortTime):
    """The signal whose windowed frames have these Fourier transforms."""

    normalized: bool = False
    length: int | None = None
    return_complex: bool = False

    def infer(self, input: TensorSpec, window: TensorSpec | None = None) -> TensorSpec:
        self._check(input)
        if window is not None:
            self.framing.check_window(window.shape)
        dtype = input.dtype if self.return_complex else real_dtype(input.dtype)
        return TensorSpec((*input.shape[:-2], self._signal_length(input.shape[-1], self.length)), dtype)

    def forward(self, input: Array, window: Array | None = None) -> Array:
        self.infer(
            TensorSpec(input.shape, input.dtype), None if window is None else TensorSpec(window.shape, window.dtype)
        )
        scaled = input * real_dtype(input.dtype).type(math.sqrt(self.n_fft)) if self.normalized else input
        signals = self._signals(scaled.reshape(-1, *input.shape[-2:]), window, not self.return_complex, self.length)
        return signals.reshape(*input.shape[:-2], signals.shape[-1])

    def is_half(self, shape: Shape) -> bool:
        whole = self.return_complex or shape[-2] == self.n_fft
        return not whole if self.onesided is None else self.onesided

    def _check(self, input: TensorSpec) -> None:
        if self.onesided and self.return_complex:
            raise ParameterError("a one-sided spectrum needs a real signal", found="onesided and return_complex")
        if input.dtype.kind != "c" or input.rank not in (2, 3):
            raise ShapeError("a complex spectrum or a batch of them is needed", found=str(input))
        if input.shape[-2] not in (None, self.places(self.is_half(input.shape))):
            raise ShapeError(
                "spectrum does not fit n_fft", found=input.shape[-2], expected=self.places(self.is_half(input.shape))
            )


# Raw types occur if a number is computed from sizes.
overload(
    "aten::istft", (Istft, "input n_fft hop_length win_length window center normalized onesided length return_complex")
)


class _Normalised(_ShortTime):
    """Base of torchaudio's layers; ``normalized`` is a bool, window or frame_length."""

    pad: int = 0
    normalized: bool | str = False
    onesided: bool | None = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad > LARGEST:
            raise ParameterError("pad is too large", found=self.pad, expected=f"at most {LARGEST}")
        if self.normalized not in (True, False, "window", "frame_length") or self.pad < 0:
            raise ParameterError("unknown normalisation or padding", found=f"{self.normalized} and {self.pad}")

    def factor(self, window: Array) -> float:
        if self.normalized == "frame_length":
            return math.sqrt(self.n_fft)
        return math.sqrt(float((window * window).sum())) if self.normalized else 1.0


@register("torchaudio.functional.spectrogram")
class Spectrogram(_Normalised):
    """|stft| ** power of a signal padded with zeros on both sides; the stft itself without power.

    Shapes:
        waveform (..., length), window (win_length) -> (..., n_fft//2 + 1 or n_fft, frames).
    """

    power: float | None = 2.0

    def infer(self, waveform: TensorSpec, window: TensorSpec) -> TensorSpec:
        self._check_real(bool(self.onesided), waveform, window)
        length = waveform.shape[-1] if waveform.shape else 0
        frames = self.framing.count(None if length is None else length + 2 * self.pad)
        dtype = complex_dtype(waveform.dtype)
        shape = (*waveform.shape[:-1], self.places(bool(self.onesided)), frames)
        return TensorSpec(shape, dtype if self.power is None else real_dtype(dtype))

    def forward(self, waveform: Array, window: Array) -> Array:
        shape = self.infer(TensorSpec(waveform.shape, waveform.dtype), TensorSpec(window.shape, window.dtype)).shape
        padded = (*waveform.shape[:-1], waveform.shape[-1] + 2 * self.pad)
        check_scratch(padded, waveform.dtype, waveform.nbytes, "the padded signal")
        signals = np.pad(waveform.reshape(-1, waveform.shape[-1]), ((0, 0), (self.pad, self.pad)))
        spectrum = self._spectrum(signals, window, bool(self.onesided)) / waveform.dtype.type(self.factor(window))
        spectrum = spectrum.reshape(sizes(shape))
        return spectrum if self.power is None else np.asarray(np.abs(spectrum) ** waveform.dtype.type(self.power))


@register("torchaudio.functional.inverse_spectrogram")
class InverseSpectrogram(_Normalised):
    """The signal of a complex spectrogram; pad points are removed at both ends if length is given."""

    length: int | None = None

    def infer(self, spectrogram: TensorSpec, window: TensorSpec) -> TensorSpec:
        if spectrogram.dtype.kind != "c" or spectrogram.rank < 2:
            raise ShapeError("a complex spectrogram is needed", found=str(spectrogram))
        places = self.places(bool(self.onesided))
        if spectrogram.shape[-2] not in (None, places):
            raise ShapeError("spectrogram does not fit n_fft", found=spectrogram.shape[-2], expected=places)
        length = self._signal_length(spectrogram.shape[-1], self.length)
        return TensorSpec((*spectrogram.shape[:-2], length), real_dtype(spectrogram.dtype))

    def forward(self, spectrogram: Array, window: Array) -> Array:
        shape = self.infer(*(TensorSpec(each.shape, each.dtype) for each in (spectrogram, window))).shape
        scaled = spectrogram * real_dtype(spectrogram.dtype).type(self.factor(window))
        length = None if self.length is None else self.length + 2 * self.pad
        signals = self._signals(scaled.reshape(-1, *spectrogram.shape[-2:]), window, True, length)
        kept = signals if self.length is None else signals[:, self.pad : self.pad + self.length]
        return kept.reshape(sizes(shape))
