"""Short-time Fourier transforms: spectra of overlapping frames of a signal, and the inverse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.pad import Pad
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.elementwise.complex import Part, complex_dtype
from engine.layers.elementwise.functions import Binary
from engine.layers.indexing.slicing import Slice
from engine.layers.operands.spatial import LARGEST
from engine.layers.reduction.deviation import Norm
from engine.layers.shape.shape import Flatten, Unflatten
from engine.layers.signal.framing import Framing
from engine.promotion import real_dtype
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, dtype_name, format_shape, spec_of


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

    def _check_real(self, is_half: bool, *operands: TensorSpec | Array | None) -> None:
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


class _Normalised(_ShortTime, Composite):
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

    def _stft(self, layer: type[Stft | Istft], **given: Any) -> Layer:
        """Return the transform of this size, hop and window."""
        names = ("n_fft", "hop_length", "win_length", "center", "pad_mode", "onesided")
        is_by_length = self.normalized == "frame_length"
        return layer(**{name: getattr(self, name) for name in names}, normalized=is_by_length, **given)

    def _scaled(self, call: CallLayer, x: Any, window: Array, function: str) -> Any:
        """Divide or multiply by the norm of the window, if that is the normalisation."""
        is_by_window = self.normalized in (True, "window")
        return formula(call, f"{function}(@0,@1)", x, call(Norm(), window)) if is_by_window else x


@register("torchaudio.functional.spectrogram")
class Spectrogram(_Normalised):
    """|stft| ** power of a signal padded with zeros on both sides; the stft itself without power.

    Shapes:
        waveform (..., length), window (win_length) -> (..., n_fft//2 + 1 or n_fft, frames).
    """

    power: float | None = 2.0

    def compose(self, call: CallLayer, waveform: Array, window: Array) -> Any:
        self._check_real(bool(self.onesided), waveform, window)
        lead = waveform.shape[:-1]
        signals = call(Flatten(end_dim=-2), waveform) if len(lead) > 1 else waveform
        signals = call(Pad(pad=(self.pad, self.pad)), signals) if self.pad else signals
        spectrum = call(self._stft(Stft, return_complex=True), signals, window)
        spectrum = call(Unflatten(dim=0, sizes=(-1, *lead[1:])), spectrum) if len(lead) > 1 else spectrum
        if self.power is None:
            return self._scaled(call, spectrum, window, "div")
        parts = [self._scaled(call, call(Part(is_imaginary=each), spectrum), window, "div") for each in (False, True)]
        if self.power == 2:
            return formula(call, "add(square(@0),square(@1))", *parts)
        magnitude = call(Binary(function="hypot"), *parts)  # its square may overflow
        return magnitude if self.power == 1 else formula(call, f"pow(@0,{self.power})", magnitude)


@register("torchaudio.functional.inverse_spectrogram")
class InverseSpectrogram(_Normalised):
    """The signal of a complex spectrogram; pad points are removed at both ends if length is given."""

    length: int | None = None

    def compose(self, call: CallLayer, spectrogram: Array, window: Array) -> Any:
        if spectrogram.dtype.kind != "c" or len(spectrogram.shape) < 2:
            raise ShapeError("a complex spectrogram is needed", found=str(spec_of(spectrogram)))
        places = self.places(bool(self.onesided))
        if spectrogram.shape[-2] not in (None, places):
            raise ShapeError("spectrogram does not fit n_fft", found=spectrogram.shape[-2], expected=places)
        lead = spectrogram.shape[:-2]
        spectra = call(Flatten(end_dim=-3), spectrogram) if len(lead) > 1 else spectrogram
        length = None if self.length is None else self.length + 2 * self.pad
        signals = self._scaled(call, call(self._stft(Istft, length=length), spectra, window), window, "mul")
        if length is not None and self.pad:
            signals = call(Slice(dims=(-1,), starts=(self.pad,), ends=(self.pad + (self.length or 0),)), signals)
        return call(Unflatten(dim=0, sizes=(-1, *lead[1:])), signals) if len(lead) > 1 else signals
