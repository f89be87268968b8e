"""Grid sampling, blocks, patches and cropping of images."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.pad import extend, padded_shape
from engine.layers.convolution.window import Window, counts, overlap_add
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import Adapter, check_fits
from engine.layers.onnx.operands.constants import needed, whole_numbers
from engine.layers.onnx.operands.padding import pairs_of, per_axis
from engine.layers.operands.axes import checked_axes
from engine.layers.operands.precision import widened, working_dtype
from engine.layers.operands.spatial import FLOATING, REAL, tensor
from engine.layers.shape.shape import Rearrangement
from engine.layers.vision.grid import AffineGrid, GridSample
from engine.layers.vision.shuffle import divided
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, Dim, TensorSpec, product


@register("GridSample")
class OnnxGridSample(Adapter):
    """Values of the input at the positions of a grid.

    Shapes:
        input (N, C, H, W), grid (N, OH, OW, 2)  ->  (N, C, OH, OW), or with a depth each and 3 coordinates.
    Dtypes:
        input and grid floating, of any width each, computed in the wider one; integers too where the mode is nearest;
        the result has the input's.
    """

    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    canonicalises = False
    canonical_layers = (GridSample,)

    def canonical(self, *operands: Any) -> Layer:
        return GridSample(mode=self.mode, padding_mode=self.padding_mode, align_corners=self.align_corners)

    def infer(self, input: Any, grid: Any) -> TensorSpec:
        spec = tensor(input, "input", REAL if self.mode == "nearest" else FLOATING)
        places = tensor(grid, "grid", FLOATING)
        wide = [TensorSpec(each.shape, np.dtype(np.float64)) for each in (spec, places)]
        return TensorSpec(self.canonical().infer(*wide).shape, spec.dtype)

    def forward(self, input: Array, grid: Array) -> Any:
        self.infer(input, grid)
        if input.dtype == grid.dtype:
            return self.run(input, grid)
        x, places = input if input.dtype.kind in "iu" else widened(input), widened(grid)
        working = np.result_type(x, places)
        return cast(self.run(x.astype(working), places.astype(working)), input.dtype)


@register("AffineGrid", positional=("theta", "size"))
class OnnxAffineGrid(Layer):
    """Positions of the elements of an image under an affine map.

    Shapes:
        theta (N, 2, 3), size (N, C, H, W)  ->  (N, H, W, 2), or with a depth
    """

    align_corners: bool = False

    def infer(self, theta: TensorSpec, size: Any) -> Any:
        sizes = whole_numbers(size, "size")
        return UNKNOWN if sizes is None else self.grid(sizes).infer(theta)

    def forward(self, theta: Array, size: Any) -> Array:
        return self.grid(needed(whole_numbers(size, "size"), "size")).forward(theta)

    def grid(self, sizes: tuple[int, ...]) -> AffineGrid:
        """Return the layer for given sizes.

        Raises:
            ShapeError: a size is negative.
        """
        if any(size < 0 for size in sizes):
            raise ShapeError("size does not fit", found=list(sizes), expected="sizes of 0 and more")
        return AffineGrid(size=sizes, align_corners=self.align_corners)


class _Blocks(Rearrangement):
    """Base of rearrangements between channels and space."""

    blocksize: int

    def __post_init__(self) -> None:
        if self.blocksize < 1:
            raise ParameterError("blocksize must be positive", found=self.blocksize)


@register("DepthToSpace")
class DepthToSpace(_Blocks):
    """Blocks of b x b pixels from b*b channels each; the channels are ordered depth-first (DCR) or column-first (CRD).

    Shapes:
        input (N, C*b*b, H, W)  ->  (N, C, H*b, W*b), b = blocksize
    """

    mode: Literal["DCR", "CRD"] = "DCR"

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_fits(input.rank == 4, "input", input.shape, "4 axes")
        n, c, h, w = input.shape
        b = self.blocksize
        return TensorSpec((n, divided(c, b * b, "channels"), product((h, b)), product((w, b))), input.dtype)

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        n, c, h, w = input.shape
        b = self.blocksize
        if self.mode == "DCR":
            blocks = input.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = input.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return blocks.reshape(spec.sizes)


@register("SpaceToDepth")
class SpaceToDepth(_Blocks):
    """Channels, b*b each, from blocks of b x b pixels; the inverse of DepthToSpace.

    Shapes:
        input (N, C, H*b, W*b)  ->  (N, b*b*C, H, W), b = blocksize
    """

    mode: Literal["DCR", "CRD"] = "DCR"

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_fits(input.rank == 4, "input", input.shape, "4 axes")
        n, c, h, w = input.shape
        b = self.blocksize
        return TensorSpec((n, product((c, b * b)), divided(h, b, "height"), divided(w, b, "width")), input.dtype)

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        n, c, h, w = input.shape
        b = self.blocksize
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return input.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(spec.sizes)


@register("Col2Im", positional=("input", "image_shape", "block_shape"))
class Col2Im(Layer):
    """Sum of patches, one from each column, at their positions.

    Shapes:
        input (N, C*taps, L), image_shape (*S), block_shape (*K)  ->  (N, C, *S)
    """

    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def infer(self, input: TensorSpec, image_shape: Any, block_shape: Any) -> Any:
        sizes, block = whole_numbers(image_shape, "image_shape"), whole_numbers(block_shape, "block_shape")
        if sizes is None or block is None:
            return UNKNOWN
        windows = self.windows(sizes, block)
        taps, patches = product(block) or 1, product(counts(windows, sizes))
        fits = input.rank == 3 and input.shape[2] in (None, patches)
        check_fits(fits, "input", input.shape, f"[N, C*{taps}, {patches}]")
        return TensorSpec((input.shape[0], divided(input.shape[1], taps, "rows"), *sizes), input.dtype)

    def forward(self, input: Array, image_shape: Any, block_shape: Any) -> Array:
        sizes = needed(whole_numbers(image_shape, "image_shape"), "image_shape")
        block = needed(whole_numbers(block_shape, "block_shape"), "block_shape")
        spec = self.infer(TensorSpec(input.shape, input.dtype), sizes, block)
        windows = self.windows(sizes, block)
        places = [window.count(size) or 0 for window, size in zip(windows, sizes, strict=True)]
        n, channels = spec.shape[:2]
        values = cast(input, working_dtype(input.dtype)).reshape(n, channels, *block, *places)
        with np.errstate(all="ignore"):
            return cast(overlap_add(values, windows, sizes), input.dtype)

    def windows(self, sizes: tuple[int, ...], block: tuple[int, ...]) -> tuple[Window, ...]:
        """Return the patches of such an image.

        Raises:
            ShapeError: they do not fit the image.
        """
        rank = len(sizes)
        if len(block) != rank or rank < 1 or min((*sizes, *block)) < 1:
            found = f"{list(block)} on {list(sizes)}"
            raise ShapeError("block_shape does not fit", found=found, expected="positive sizes, as many of each")
        strides, dilations = per_axis(self.strides, rank, "strides"), per_axis(self.dilations, rank, "dilations")
        rows = zip(block, strides, dilations, pairs_of(self.pads, rank), strict=True)
        return tuple(
            Window(kernel=k, stride=s, dilation=d, before=before, after=after) for k, s, d, (before, after) in rows
        )


@register("CenterCropPad", positional=("input", "shape"))
class CenterCropPad(Layer):
    """Axes cropped, or padded with zeros, to sizes, centred; the odd element is at the end."""

    axes: tuple[int, ...] | None = None

    def infer(self, input: TensorSpec, shape: Any) -> TensorSpec:
        sizes, axes = whole_numbers(shape, "shape"), self._axes(input.rank)
        result: list[Dim] = list(input.shape)
        for position, axis in enumerate(axes):
            result[axis] = None if sizes is None else self._size(sizes, len(axes), position)
        return TensorSpec(tuple(result), input.dtype)

    def forward(self, input: Array, shape: Any) -> Array:
        sizes, axes = needed(whole_numbers(shape, "shape"), "shape"), self._axes(input.ndim)
        pairs = [(0, 0)] * input.ndim
        for position, axis in enumerate(axes):
            more = self._size(sizes, len(axes), position) - input.shape[axis]
            before = more // 2 if more > 0 else -(-more // 2)
            pairs[axis] = (before, more - before)
        padded_shape(input.shape, pairs)
        return extend(input, pairs)

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank)) if self.axes is None else checked_axes(self.axes, rank)

    def _size(self, sizes: tuple[int, ...], count: int, position: int) -> int:
        if len(sizes) != count or any(size < 0 for size in sizes):
            raise ShapeError("shape does not fit", found=list(sizes), expected=f"{count} sizes")
        return sizes[position]
