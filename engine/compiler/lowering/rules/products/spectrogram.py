"""Spectra of overlapping frames, and signals from them: a product of all frames with one windowed matrix.

The frames of one signal overlap in memory; those of several signals are copied.
"""

from __future__ import annotations

import math

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, unfused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.movement.padding import padded
from engine.compiler.lowering.rules.products.linear import linear_step, multiply_frames, overlap_add, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import COMPLEX64, Lowered, NotLoweredError, as_words, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major
from engine.layers.signal.fourier import OneAxis
from engine.layers.signal.framing import Framing
from engine.layers.signal.short_time_fourier import Istft, Stft
from engine.tensor import Array

# Largest matrix for few rows and for many rows; beyond that an FFT, which takes n log n, is faster.
FEW_PRODUCTS, MAX_PRODUCTS = 2**16, 2**19
MANY_ROWS = 16
X, Y = Operand(0), Operand(1)
# Smallest sum of squared windows to divide by; the reference refuses smaller ones.
_MIN_SHARE = 1e-11


@kernels_for(OneAxis)
def lower_transform(context: Context) -> Lowered:
    """Lower a transform along one axis, as the product of its rows with a matrix."""
    layer, x = context.layer(OneAxis), context.argument(0)
    if not isinstance(x, View) or x.dtype not in (FLOAT32, COMPLEX64) or not x.meta.size:
        raise NotLoweredError("there are transforms only for float32 and complex64")
    axis, points = layer.along(x.shape)
    moved = derived(x, x.meta.moveaxis(axis, -1))
    size, count = moved.shape[-1], moved.meta.size // moved.shape[-1]
    if 2 * size * points > (MAX_PRODUCTS if count >= MANY_ROWS else FEW_PRODUCTS):
        raise NotLoweredError("numpy is faster for so many points")
    # numpy takes no symbolic size: the size becomes a guard
    matrix = layer.matrix(size, int(points), x.dtype == COMPLEX64)
    dtype = COMPLEX64 if matrix.dtype.kind == "c" else FLOAT32
    weight = np.ascontiguousarray(_as_floats(matrix).T, np.float32)
    words = as_words(moved)
    rows, copies = context.rows(words, len(words.shape) - len(moved.shape) + 1)
    target = row_major((*moved.shape[:-1], matrix.shape[-1]), dtype)
    flat = as_words(target)
    lines = derived(flat, flat.meta.reshape(count, len(weight)))
    result = Result.of(unfused(context.op), lines, rows_as_image, context.lowering.fault_flag)
    step = linear_step(context, result, rows, weight, None)
    return context.lowered(derived(target, target.meta.moveaxis(-1, axis)), *copies, step)


def _as_floats(matrix: Array) -> Array:
    """Return columns of complex numbers as two columns each."""
    return matrix.view(np.float64) if matrix.dtype.kind == "c" else matrix


@kernels_for(Stft)
def lower_stft(context: Context) -> Lowered:
    """Lower the transforms of all frames."""
    layer, x, composition = context.layer(Stft), context.tensor(0), Composition(context)
    if len(x.shape) not in (1, 2):
        raise NotLoweredError("its operand is not a signal or a batch of signals")
    signals = composition.shaped(x, [1, *x.shape][-2:])
    scale = 1 / math.sqrt(layer.n_fft) if layer.normalized else 1.0
    is_half = layer.is_half(x.dtype)
    spectrum = _spectrum(composition, signals, layer.framing, _window_operand(context), is_half=is_half, scale=scale)
    turned = derived(spectrum, spectrum.meta.swapaxes(1, 2))
    turned = turned if len(x.shape) == 2 else derived(turned, turned.meta[0])
    return context.lowered(turned if layer.gives_complex else as_words(turned), *composition.steps)


@kernels_for(Istft)
def lower_inverse(context: Context) -> Lowered:
    """Lower the signal whose frames have these transforms: overlap-add, divided by the sum of squared windows."""
    layer = context.layer(Istft)
    x, composition, window = context.argument(0), Composition(context), _window(context)
    if not isinstance(x, View) or x.dtype != COMPLEX64 or len(x.shape) < 2 or not x.meta.size:
        raise NotLoweredError("its operand is not a complex64 spectrum")
    if layer.return_complex:
        raise NotLoweredError("there is no kernel for complex signals")
    framing, scale = layer.framing, math.sqrt(layer.n_fft) if layer.normalized else 1.0
    frames = _frames_of(composition, x, framing, window, scale)
    return _joined(composition, frames, framing, framing.window(window, FLOAT32), layer.length)


def _window_operand(context: Context) -> Array | View | None:
    """Return the window, known or computed."""
    value = context.argument(1) if len(context.bound.positional) > 1 else None
    return value if isinstance(value, View) and value.dtype == FLOAT32 else _window(context)


def _window(context: Context) -> Array | None:
    """Return the window, which must be known."""
    value = context.argument(1) if len(context.bound.positional) > 1 else None
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.dtype != FLOAT32:
        raise NotLoweredError("its window is known only at run time, or has another dtype")
    return value


def _padded(composition: Composition, signals: View, margin: int, mode: str) -> View:
    """Pad signals with so many points on both sides."""
    batch, length = signals.shape
    buffer = row_major((batch, length + 2 * margin), FLOAT32)
    composition.steps += padded(composition.context, signals, buffer, [(0, 0), (margin, margin)], mode)
    return buffer


def _spectrum(
    composition: Composition,
    signals: View,
    framing: Framing,
    window: Array | View | None,
    *,
    is_half: bool,
    scale: float,
) -> View:
    """Return the spectrum (batch, frames, bins), complex, of signals (batch, length)."""
    size = framing.n_fft
    count = framing.count(signals.shape[1])
    known = None if isinstance(window, View) else window
    points = np.diag(framing.window(known, np.dtype(np.float64))) * scale
    matrix = np.fft.rfft(points) if is_half else np.fft.fft(points)
    if count is None or matrix.size * 2 > MAX_PRODUCTS:
        raise NotLoweredError("numpy is faster for so many points")
    if framing.margin:
        signals = _padded(composition, signals, framing.margin, framing.pad_mode)
    batch, _ = signals.shape
    steps = signals.meta.strides
    overlapping = signals.meta.as_strided((batch, count, size), (steps[0], framing.hop * steps[1], steps[1]))
    frames = derived(signals, overlapping)
    if isinstance(window, View):  # the window is 0 outside
        first = (size - framing.window_length) // 2
        inside = slice(first, first + framing.window_length)
        frames = composition.map(apply("mul", X, Y), derived(frames, frames.meta[..., inside]), window)
        matrix = np.ascontiguousarray(matrix[inside])
    target = row_major((batch, count, matrix.shape[1]), COMPLEX64)
    words = as_words(target)
    lines = derived(words, words.meta.reshape(batch * count, -1))
    weight = np.ascontiguousarray(matrix.view(np.float64).T, np.float32)
    multiply_frames(composition, frames, lines, weight)
    return target


def _frames_of(composition: Composition, x: View, framing: Framing, window: Array | None, scale: float) -> View:
    """Return the windowed frames (batch, frames, n_fft) of a complex spectrum (..., bins, frames)."""
    size = framing.n_fft
    places = size // 2 + 1
    half = derived(x, x.meta[..., :places, :])
    words = as_words(half)
    turned = derived(words, words.meta.moveaxis(-2, -3))  # (..., frames, places, 2)
    count = turned.shape[-3]
    batch = math.prod(turned.shape[:-3])
    if 2 * places * size > MAX_PRODUCTS:
        raise NotLoweredError("numpy is faster for so many points")
    units = np.eye(places)
    rows = np.stack([units + 0j, 1j * units], 1).reshape(2 * places, places)
    matrix = np.fft.irfft(rows, size) * framing.window(window, np.dtype(np.float64)) * scale
    copied = row_major((batch, count, 2 * places), FLOAT32)
    composition.steps.append(composition.context.copy(turned, derived(copied, copied.meta.reshape(turned.shape))))
    frames = row_major((batch, count, size), FLOAT32)
    flat, lines = (derived(each, each.meta.reshape(1, batch * count, -1)) for each in (copied, frames))
    weight = np.ascontiguousarray(matrix.T, np.float32)
    multiply_frames(composition, flat, derived(lines, lines.meta[0]), weight)
    return frames


def _joined(composition: Composition, frames: View, framing: Framing, window: Array, length: int | None) -> Lowered:
    """Lower frames (batch, frames, n_fft) to signals."""
    batch, count, size = frames.shape
    hop, sizes = framing.hop, composition.context.result_spec.sizes
    share = framing.added(np.broadcast_to(window * window, (1, count, size)))[0]
    full = size + hop * (count - 1)
    first = framing.margin
    last = full - first if length is None else first + length
    if last > full or np.abs(share[first:last]).min(initial=1) < _MIN_SHARE:
        raise NotLoweredError("its windows leave gaps, or its frames do not cover the signal")
    buffer = overlap_add(composition, derived(frames, frames.meta[:, None]), hop)
    buffer = derived(buffer, buffer.meta[:, 0])
    kept = slice(first, last)
    weights = constant(np.ascontiguousarray(share[kept]))
    signal = composition.map(apply("div", X, Y), derived(buffer, buffer.meta[:, kept]), weights)
    return composition.finish(X, derived(signal, signal.meta.reshape(sizes)))
