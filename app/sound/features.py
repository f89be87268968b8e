"""Log-mel spectrograms and cepstral coefficients, computed by a graph of the engine's operators.

Taper, preemphasis and removal of the mean of a frame are linear, so they are multiplied into the matrix of the Fourier
transform; frames become spectra by one strided convolution. Bands and cepstra are products with a matrix.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.sound.config import SoundConfig
from app.sound.mel import mel_filters

Matrix = NDArray[np.float64]

_NAME: Final = "features"
_LN10: Final = float(np.log(10))
_PAD: Final = {"reflect": "mode=reflect pad=({0},{0})", "zeros": "mode=constant value=0.0 pad=({0},{0})"}
# Added to a deviation, which is 0 for silence; as NeMo has it.
_LITTLE: Final = 1e-5


def compose_features(config: SoundConfig) -> engine.RuntimeGraph:
    """Return the graph from waves (N, samples) to features (N, features, frames)."""
    lines = _Lines()
    at = lines.add("torch.unsqueeze", "row", "wave", "dim=1")
    if config.frames == "centred":
        at = lines.add("F.pad", "padded", at, _PAD[config.padding].format(config.n_fft // 2))
    at = lines.product("spectrum", at, fourier_matrix(config), config.hop_length)
    lines.split("parts", at, ("real", "imaginary"))
    power = "add(square(@0),square(@1))"
    at = lines.formula("power", "real imaginary", power if config.power == 2 else f"sqrt({power})")
    at = lines.product("bands", at, mel_filters(config))
    at = _logarithm(lines, at, config)
    if config.features == "mfcc":
        at = lines.product("cepstra", at, cosine_matrix(config.n_mfcc, config.n_mels))
    if config.mean != 0 or config.std != 1:
        at = lines.formula("standard", at, f"div(sub(@0,{config.mean!r}),{config.std!r})")
    return lines.graph(_normalised(lines, at, config))


def _logarithm(lines: _Lines, at: str, config: SoundConfig) -> str:
    if config.log == "none":
        return at
    inner = f"add(@0,{config.log_offset!r})" if config.log_offset else "@0"
    inner = f"maximum({inner},{config.log_floor!r})" if config.log_floor else inner
    factor = {"ln": 1.0, "log10": 1 / _LN10, "db": 10 / _LN10}[config.log]
    at = lines.formula("log", at, f"log({inner})" if factor == 1 else f"mul(log({inner}),{factor!r})")
    if config.log_range is None:
        return at
    most = lines.add("torch.amax", "largest", at, "dim=(1,2) keepdim=True")
    return lines.formula("raised", f"{at} {most}", f"maximum(@0,sub(@1,{config.log_range!r}))")


def _normalised(lines: _Lines, at: str, config: SoundConfig) -> str:
    if config.normalise not in ("mean", "mean-std"):
        return at
    mean = lines.add("torch.mean", "mean", at, "dim=(2) keepdim=True")
    at = lines.formula("level", f"{at} {mean}", "sub(@0,@1)")
    if config.normalise == "mean":
        return at
    deviation = lines.add("torch.std", "deviation", at, "dim=(2) keepdim=True unbiased=True")
    return lines.formula("scaled", f"{at} {deviation}", f"div(@0,add(@1,{_LITTLE!r}))")


def fourier_matrix(config: SoundConfig) -> Matrix:
    """Return the matrix from a frame to real, then imaginary parts of its spectrum, (2 * bins, samples)."""
    length, points = config.frame_length, config.n_fft
    window = taper(config.taper, length)
    if config.frames == "kaldi":
        frame = np.diag(window) @ _emphasis(length, config.preemphasis) @ (np.eye(length) - 1 / length)
        frame = np.pad(frame, [(0, points - length), (0, 0)])
    else:  # the window is in the middle of the points
        first = (points - length) // 2
        frame = np.diag(np.pad(window, (first, points - length - first)))
    spectrum = np.fft.rfft(frame, axis=0)
    return np.concatenate([spectrum.real, spectrum.imag])


def _emphasis(length: int, share: float) -> Matrix:
    """Return the matrix that subtracts from each sample a share of the one before; the first loses its own share."""
    matrix: Matrix = np.eye(length) - share * np.eye(length, k=-1)
    matrix[0, 0] -= share
    return matrix


def taper(name: str, length: int) -> Matrix:
    """Return a window function."""
    if name == "none":
        return np.ones(length)
    is_symmetric = name == "povey" or name.endswith("-symmetric")
    points = length if is_symmetric else length + 1  # a periodic window leaves out the last point
    values: Matrix = (np.hamming if name.startswith("hamming") else np.hanning)(points)[:length]
    return np.asarray(values**0.85) if name == "povey" else values


def cosine_matrix(count: int, bands: int) -> Matrix:
    """Return the orthonormal discrete cosine transform of type II, (count, bands)."""
    angles = np.pi / bands * np.outer(np.arange(count), np.arange(bands) + 0.5)
    matrix: Matrix = np.cos(angles) * np.sqrt(2 / bands)
    matrix[0] /= np.sqrt(2)
    return matrix


class _Lines:
    """Lines of a ``.pnnx.param`` file as they are written, and the tensors that belong to them."""

    def __init__(self) -> None:
        self._lines = ["pnnx.Input in0 0 1 wave #wave=(?,?)f32"]
        self._tensors: dict[str, NDArray[Any]] = {}

    def add(self, kind: str, name: str, inputs: str, parameters: str) -> str:
        """Add an operator with one output of its name, and return the name."""
        self._lines.append(f"{kind} {name} {len(inputs.split())} 1 {inputs} {name} {parameters}")
        return name

    def formula(self, name: str, inputs: str, formula: str) -> str:
        """Add an expression."""
        return self.add("pnnx.Expression", name, inputs, f"expr={formula}")

    def split(self, name: str, input: str, outputs: tuple[str, str]) -> None:
        """Split the channels into two halves."""
        self._lines.append(f"torch.chunk {name} 1 2 {input} {' '.join(outputs)} chunks=2 dim=1")

    def product(self, name: str, input: str, matrix: Matrix, stride: int = 1) -> str:
        """Multiply a matrix with every column, or with every ``stride``-th frame of a wave."""
        is_frame = stride > 1 or name == "spectrum"
        made = len(matrix)
        weight = (matrix[:, None] if is_frame else matrix[..., None]).astype(np.float32)
        self._tensors[f"{name}.weight"] = weight
        shape = ",".join(map(str, weight.shape))
        return self.add(
            "nn.Conv1d", name, input,
            f"bias=False dilation=(1) groups=1 in_channels={weight.shape[1]} kernel_size=({weight.shape[2]})"
            f" out_channels={made} padding=(0) padding_mode=zeros stride=({stride}) @weight=({shape})f32",
        )  # fmt: skip

    def graph(self, output: str) -> engine.RuntimeGraph:
        """Return the graph with this output."""
        return engine.compose([*self._lines, f"pnnx.Output out0 1 0 {output}"], self._tensors, _NAME)
