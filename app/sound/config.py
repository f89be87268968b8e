"""Table [sound] of a model's config.toml: how sounds become the inputs of the model."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from app.schema import Finite, Positive, Section

MIN_RATE: Final = 1_000
MAX_RATE: Final = 384_000

Rate = Annotated[int, Field(ge=MIN_RATE, le=MAX_RATE)]
Seconds = Annotated[float, Field(gt=0, le=3_600)]


class SoundConfig(Section):
    """Conversion of sounds to inputs: one channel, resampled, cut into windows, as waves or features."""

    sample_rate: Rate = Field(default=16_000, description="Samples per second that the model takes.")
    channel: Literal["mean", "first"] = Field(
        default="mean", description="How several channels become one: their mean, or the first alone."
    )
    scale: Finite = Field(default=1.0, description="Factor of samples, which are -1 to 1; 32768 for 16-bit values.")
    window_s: Seconds | None = Field(
        default=None,
        description="Seconds of sound in one row; longer sounds are cut. Default: as the input has them, else no cut.",
    )
    overlap_s: Annotated[float, Field(ge=0, le=3_600)] = Field(
        default=0.0, description="Seconds that each window shares with the one before."
    )
    context_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=0.0, description="Seconds before a window that are added to it; zeros before the first."
    )
    normalise: Literal["none", "wave", "mean", "mean-std"] = Field(
        default="none",
        description="wave: samples of a row get mean 0 and variance 1; mean, mean-std: values of each feature do, over"
        " time.",
    )
    features: Literal["wave", "log-mel", "mfcc"] = Field(
        default="wave", description="What the input takes: samples, a log-mel spectrogram, or cepstral coefficients."
    )
    layout: Literal["feature-time", "time-feature"] | None = Field(
        default=None,
        description="Order of the last dimensions of features; default: as sizes tell, else the first.",
    )
    n_fft: Annotated[int, Field(ge=16, le=16_384)] = Field(default=400, description="Points of the Fourier transform.")
    win_length: Annotated[int, Field(ge=2, le=16_384)] | None = Field(
        default=None, description="Samples of a frame, at most n_fft; default: n_fft."
    )
    hop_length: Annotated[int, Field(ge=1, le=65_536)] = Field(default=160, description="Samples between two frames.")
    frames: Literal["centred", "inside", "kaldi"] = Field(
        default="centred",
        description="centred: frames are centred on multiples of the hop; inside: no frame reaches beyond the sound;"
        " kaldi: as inside, each frame without its mean and with preemphasis.",
    )
    padding: Literal["reflect", "zeros"] = Field(default="reflect", description="What centred frames meet at the ends.")
    taper: Literal["hann", "hann-symmetric", "hamming", "hamming-symmetric", "povey", "none"] = Field(
        default="hann", description="Window function of frames; povey is symmetric."
    )
    preemphasis: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Share of the sample before that is subtracted from each sample."
    )
    power: Literal[1, 2] = Field(default=2, description="2: power spectrum; 1: magnitudes.")
    n_mels: Annotated[int, Field(ge=1, le=1_024)] = Field(default=80, description="Mel bands.")
    n_mfcc: Positive = Field(default=13, description="Cepstral coefficients, at most n_mels.")
    fmin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(default=0.0, description="Lowest frequency, Hz.")
    fmax: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Highest frequency, Hz; default: half the sample rate."
    )
    mel_scale: Literal["htk", "slaney", "kaldi"] = Field(
        default="htk", description="Formula of the mel scale; kaldi: htk with bands that are triangles in mels."
    )
    mel_norm: Literal["none", "slaney"] = Field(default="none", description="slaney: bands of equal area.")
    log: Literal["ln", "log10", "db", "none"] = Field(
        default="ln", description="Logarithm of the bands; db: 10 times log10."
    )
    log_floor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=1e-10, description="Smallest value whose logarithm is taken; smaller ones become this."
    )
    log_offset: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0, description="Added before the logarithm."
    )
    log_range: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Values further below the largest of a row are raised; 80 with db is usual."
    )
    mean: Finite = Field(default=0.0, description="Subtracted from features.")
    std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(default=1.0, description="Divides features.")
    input: str | None = Field(default=None, description="Input that takes the sound; default: found by its shape.")
    lengths: str | None = Field(default=None, description="Input that takes the number of samples or frames, (N,).")
    mask: str | None = Field(default=None, description="Input that takes 1 for samples or frames, 0 for padding.")
    rate: str | None = Field(default=None, description="Input that takes the sample rate.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Reject keys that contradict each other."""
        if self.frame_length > self.n_fft:
            raise ValueError(f"win_length: found {self.frame_length}, expected at most n_fft, {self.n_fft}")
        if self.n_mfcc > self.n_mels and self.features == "mfcc":
            raise ValueError(f"n_mfcc: found {self.n_mfcc}, expected at most n_mels, {self.n_mels}")
        if not self.fmin < self.highest <= self.sample_rate / 2:
            raise ValueError(f"fmax: found {self.highest:g}, expected more than fmin and at most sample_rate / 2")
        if self.window_s is not None and self.overlap_s > self.window_s * _MOST_OVERLAP:
            raise ValueError(f"overlap_s: found {self.overlap_s:g}, expected at most {_MOST_OVERLAP} of window_s")
        if self.normalise.startswith("mean") and self.features == "wave":
            raise ValueError(f"normalise: found '{self.normalise}', which is for features, expected 'wave' or 'none'")
        return self

    @property
    def frame_length(self) -> int:
        """Return the samples of a frame."""
        return self.n_fft if self.win_length is None else self.win_length

    @property
    def highest(self) -> float:
        """Return the highest frequency of the mel bands."""
        return self.sample_rate / 2 if self.fmax is None else self.fmax

    @property
    def size(self) -> int:
        """Return the number of features of a frame."""
        return self.n_mfcc if self.features == "mfcc" else self.n_mels


_MOST_OVERLAP: Final = 0.9
