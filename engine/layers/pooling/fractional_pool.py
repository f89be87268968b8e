"""Maximum pooling with windows at pseudo-random positions, drawn beforehand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.bounds import extremes
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import FLOATING, Operand, image, spread, tensor
from engine.layers.pooling.max_pool import INDEX
from engine.promotion import cast
from engine.tensor import Array, Dim, TensorSpec


@register("aten::fractional_max_pool2d", positional=("input", "kernel_size", "output_size", "random_samples"))
class FractionalMaxPool2d(Layer):
    """The largest element of each window and its position.

    On an axis of L elements and O windows of k taps, window i begins at trunc((i + u)*a) - trunc(u*a) with
    a = (L - k) / (O - 1), the last at L - k; u is the sample of the image, the channel and the axis.

    Shapes:
        input (N, C, H, W) or (C, H, W), random_samples (N, C, 2), the last axis being (W, H)
        ->  values and indices, both (N, C, OH, OW) or (C, OH, OW)
    Dtypes:
        floating; indices are int64, into the flattened image.
    Source:
        torch.nn.functional.fractional_max_pool2d; aten/src/ATen/native/FractionalMaxPool2d.cpp.
    """

    loops = True

    kernel_size: tuple[int, ...]
    output_size: tuple[int, ...]

    def infer(self, input: Operand, random_samples: Operand) -> Any:
        spec, samples = image(input, 2, FLOATING), tensor(random_samples, "random_samples", FLOATING)
        kernel = spread(self.kernel_size, 2, "kernel_size")
        sizes = spread(self.output_size, 2, "output_size")
        for size, taps, count in zip(spec.shape[-2:], kernel, sizes, strict=True):
            if size is not None and size < taps + count - 1:
                raise ShapeError(
                    "the input is too small", found=f"size {size}", expected=f"at least {taps + count - 1}"
                )
        expected: tuple[Dim, ...] = (spec.shape[0] if spec.rank == 4 else 1, spec.shape[-3], 2)
        check_shape(samples.shape, expected, "random_samples do not fit")
        shape = (*spec.shape[:-2], *sizes)
        return TensorSpec(shape, spec.dtype), TensorSpec(shape, INDEX)

    def forward(self, input: Array, random_samples: Array) -> tuple[Array, Array]:
        shape: Any = self.infer(input, random_samples)[0].shape
        x = cast(input, working_dtype(input.dtype))
        x = x.reshape(-1 if x.size else 0, *x.shape[-2:])
        samples = random_samples.reshape(len(x), 2)
        kh, kw = spread(self.kernel_size, 2, "kernel_size")
        rows = _starts(samples[:, 1], x.shape[1], kh, shape[-2])[:, :, None]
        cols = _starts(samples[:, 0], x.shape[2], kw, shape[-1])[:, None, :]
        values, indices = _maxima(x, rows, cols, (kh, kw))
        return cast(values, input.dtype).reshape(shape), indices.reshape(shape)


def _starts(samples: Array, size: int, taps: int, count: int) -> Array:
    """Return the first positions of the windows, (P,) -> (P, count), rounded to the samples' dtype like PyTorch's."""
    last = size - taps
    starts = np.full((len(samples), count), last, np.int64)
    if count > 1:
        alpha = samples.dtype.type(last) / samples.dtype.type(count - 1)
        i = np.arange(count - 1).astype(samples.dtype)
        offset = (samples * alpha).astype(np.int64)
        starts[:, :-1] = ((i + samples[:, None]) * alpha).astype(np.int64) - offset[:, None]
    return starts


def _maxima(x: Array, rows: Array, cols: Array, kernel: tuple[int, int]) -> tuple[Array, Array]:
    """Return maxima of x (P, H, W) for rows (P, OH, 1), cols (P, 1, OW), and positions: the first, or the last NaN."""
    plane = np.arange(len(x))[:, None, None]
    values = np.full(np.broadcast_shapes(rows.shape, cols.shape), extremes(x.dtype)[0], x.dtype)
    indices = rows * x.shape[2] + cols
    for down, right in cancellable(product(*map(range, kernel))):
        element = x[plane, rows + down, cols + right]
        better = (element > values) | (element != element)
        np.copyto(values, element, where=better)
        np.copyto(indices, (rows + down) * x.shape[2] + cols + right, where=better)
    return values, indices
