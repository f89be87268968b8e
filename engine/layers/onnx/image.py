"""Images: resampled, sampled at grids, cut into blocks, patches and regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.pad import extend, padded_shape
from engine.layers.convolution.window import Window, counts, overlap_add
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.adapter import Adapter, check_fits
from engine.layers.onnx.constants import needed, real_number, whole_numbers
from engine.layers.onnx.padding import pairs_of, per_axis
from engine.layers.operands.axes import checked_axes
from engine.layers.operands.precision import INT64, widened, working_dtype
from engine.layers.operands.spatial import FLOATING, tensor
from engine.layers.shape.shape import Rearrangement
from engine.layers.vision.grid import AffineGrid, GridSample
from engine.layers.vision.roi import MOST_SAMPLES
from engine.limits import check_scratch
from engine.promotion import cast
from engine.stopping import check_wanted, wanted
from engine.tensor import UNKNOWN, Array, Dim, TensorSpec, format_shape, product


@register("GridSample")
class OnnxGridSample(Adapter):
    """The input's values at the positions of a grid.

    Shapes:
        input (N, C, H, W), grid (N, OH, OW, 2)  ->  (N, C, OH, OW), or with a depth each and 3 coordinates.
    """

    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    settles = False

    def meaning(self, *operands: Any) -> Layer:
        return GridSample(mode=self.mode, padding_mode=self.padding_mode, align_corners=self.align_corners)

    def forward(self, input: Array, grid: Array) -> Any:
        return self.run(input, grid)


@register("AffineGrid", positional=("theta", "size"))
class OnnxAffineGrid(Layer):
    """The positions that an affine map gives to every element of an image.

    Shapes:
        theta (N, 2, 3), size (N, C, H, W)  ->  (N, H, W, 2), or with a depth
    """

    align_corners: bool = False

    def infer(self, theta: TensorSpec, size: Any) -> Any:
        sizes = whole_numbers(size, "size")
        return UNKNOWN if sizes is None else self._grid(sizes).infer(theta)

    def forward(self, theta: Array, size: Any) -> Array:
        return self._grid(needed(whole_numbers(size, "size"), "size")).forward(theta)

    def _grid(self, sizes: tuple[int, ...]) -> AffineGrid:
        if min(sizes, default=0) < 0:
            raise ShapeError("size does not fit", found=list(sizes), expected="sizes of 0 and more")
        return AffineGrid(size=sizes, align_corners=self.align_corners)


class _Blocks(Rearrangement):
    """Base of moves between channels and space."""

    blocksize: int

    def __post_init__(self) -> None:
        if self.blocksize < 1:
            raise ParameterError("blocksize must be positive", found=self.blocksize)


def _parts(size: Dim, divisor: int, name: str) -> Dim:
    if size is not None and size % divisor:
        raise ShapeError(f"{name} cannot be divided", found=size, expected=f"a multiple of {divisor}")
    return None if size is None else size // divisor


@register("DepthToSpace")
class DepthToSpace(_Blocks):
    """Every b*b channels become blocks of b x b pixels: neighbours in depth (DCR), or in a column's rows (CRD).

    Shapes:
        input (N, C*b*b, H, W)  ->  (N, C, H*b, W*b), b = blocksize
    """

    mode: str = "DCR"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ("DCR", "CRD"):
            raise ParameterError("unknown mode", found=self.mode, expected="DCR or CRD")

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_fits(input.rank == 4, "input", input.shape, "4 axes")
        n, c, h, w = input.shape
        b = self.blocksize
        return TensorSpec((n, _parts(c, b * b, "channels"), product((h, b)), product((w, b))), input.dtype)

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
    """Every block of b x b pixels becomes b*b channels; the inverse of DepthToSpace.

    Shapes:
        input (N, C, H*b, W*b)  ->  (N, b*b*C, H, W), b = blocksize
    """

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_fits(input.rank == 4, "input", input.shape, "4 axes")
        n, c, h, w = input.shape
        b = self.blocksize
        return TensorSpec((n, product((c, b * b)), _parts(h, b, "height"), _parts(w, b, "width")), input.dtype)

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        n, c, h, w = input.shape
        b = self.blocksize
        return input.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(spec.sizes)


@register("Col2Im", positional=("input", "image_shape", "block_shape"))
class Col2Im(Layer):
    """Every column laid down as a patch; where patches overlap they add up.

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
        windows = self._windows(sizes, block)
        taps, patches = product(block) or 1, product(counts(windows, sizes))
        fits = input.rank == 3 and input.shape[2] in (None, patches)
        check_fits(fits, "input", input.shape, f"[N, C*{taps}, {patches}]")
        return TensorSpec((input.shape[0], _parts(input.shape[1], taps, "rows"), *sizes), input.dtype)

    def forward(self, input: Array, image_shape: Any, block_shape: Any) -> Array:
        sizes = needed(whole_numbers(image_shape, "image_shape"), "image_shape")
        block = needed(whole_numbers(block_shape, "block_shape"), "block_shape")
        spec = self.infer(TensorSpec(input.shape, input.dtype), sizes, block)
        windows = self._windows(sizes, block)
        places = [window.count(size) or 0 for window, size in zip(windows, sizes, strict=True)]
        n, channels = spec.shape[:2]
        values = cast(input, working_dtype(input.dtype)).reshape(n, channels, *block, *places)
        with np.errstate(all="ignore"):
            return cast(overlap_add(values, windows, sizes), input.dtype)

    def _windows(self, sizes: tuple[int, ...], block: tuple[int, ...]) -> tuple[Window, ...]:
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
    """Axes cut, or filled up with zeros, to sizes, both sides alike; the odd element is at the end."""

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
        if len(sizes) != count or min(sizes) < 0:
            raise ShapeError("shape does not fit", found=list(sizes), expected=f"{count} sizes")
        return sizes[position]


@register("RoiAlign", positional=("input", "rois", "batch_indices"))
class OnnxRoiAlign(Layer):
    """Each region divided into bins, each bin the mean or the maximum of bilinear samples on a grid inside it.

    Shapes:
        input (N, C, H, W), rois (R, 4) of (x1, y1, x2, y2), batch_indices (R,)  ->  (R, C, output_height, output_width)
    Parameters:
        coordinate_transformation_mode: half_pixel shifts by half an element; output_half_pixel, of older files, does
            not, and makes no region smaller than an element.
        sampling_ratio: samples a bin and axis; 0 for ceil(region size / output size) of each region.
    """

    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    coordinate_transformation_mode: str = "half_pixel"

    def __post_init__(self) -> None:
        if self.mode not in ("avg", "max"):
            raise ParameterError("unknown mode", found=self.mode, expected="avg or max")
        if self.coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
            raise ParameterError("unknown coordinate_transformation_mode", found=self.coordinate_transformation_mode)
        if not 0 <= self.sampling_ratio <= MOST_SAMPLES or min(self.output_height, self.output_width) < 1:
            found = f"{self.output_height} x {self.output_width}, {self.sampling_ratio} samples"
            raise ParameterError(
                "no such bins", found=found, expected=f"positive sizes, at most {MOST_SAMPLES} samples"
            )

    def infer(self, input: TensorSpec, rois: TensorSpec, batch_indices: Any) -> TensorSpec:
        spec = tensor(input, "input", FLOATING)
        check_fits(spec.rank == 4, "input", spec.shape, "4 axes")
        check_fits(rois.rank == 2 and rois.shape[1] in (None, 4), "rois", rois.shape, "[?, 4]")
        if 0 in spec.shape[1:]:
            raise ShapeError("input is empty", found=format_shape(spec.shape))
        return TensorSpec((rois.shape[0], spec.shape[1], self.output_height, self.output_width), spec.dtype)

    def forward(self, input: Array, rois: Array, batch_indices: Any) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(rois.shape, rois.dtype), batch_indices)
        images = np.asarray(batch_indices, np.int64)
        check_fits(images.shape in ((), (len(rois),)), "batch_indices", images.shape, f"[{len(rois)}]")
        images = np.broadcast_to(images, (len(rois),))
        if images.size and not 0 <= images.min() <= images.max() < len(input):
            raise ShapeError("a roi lies outside the batch", found=f"{images.min()} to {images.max()}")
        x, regions = widened(input), widened(rois)
        result = np.zeros(spec.sizes, x.dtype)
        with np.errstate(all="ignore"):
            for index, (image, roi) in enumerate(wanted(zip(images, regions, strict=True))):
                result[index] = self._pooled(x[image], roi)
        return cast(result, input.dtype)

    def _pooled(self, image: Array, roi: Array) -> Array:
        """The bins of one region: (C, OH, OW)."""
        is_half = self.coordinate_transformation_mode == "half_pixel"
        starts = roi * roi.dtype.type(self.spatial_scale) - roi.dtype.type(0.5 if is_half else 0)
        extents = starts[2:] - starts[:2]
        extents = extents if is_half else np.maximum(extents, 1)
        rows = _taps(starts[1], extents[1], self.output_height, self.sampling_ratio, image.shape[1])
        columns = _taps(starts[0], extents[0], self.output_width, self.sampling_ratio, image.shape[2])
        c = len(image)
        check_scratch((c, rows[0].shape[1], columns[0].shape[1]), image.dtype, image.nbytes, "the samples of a region")
        samples = _weighted(image, rows, columns, self.mode)
        if not samples.size:
            return np.zeros((c, self.output_height, self.output_width), image.dtype)
        blocks = samples.reshape(c, self.output_height, -1, self.output_width, len(columns[0][0]) // self.output_width)
        if self.mode == "max":
            return np.asarray(blocks.max(axis=(2, 4)))
        return np.asarray(blocks.mean(axis=(2, 4)))


def _taps(start: Any, extent: Any, bins: int, ratio: int, size: int) -> tuple[Array, Array]:
    """Of all samples on an axis: the two elements each lies between (2, S), and their weights (2, S)."""
    width = extent / bins
    count = ratio or int(min(max(np.ceil(np.nan_to_num(width)), 0), 4 * size + 4))
    offsets = (np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(max(count, 1))
    position = (start + (np.arange(bins)[:, None] + offsets) * width).astype(np.float32).reshape(-1)
    counts_ = (position >= -1) & (position <= size)
    inside = np.clip(np.where(counts_, position, 0), 0, size - 1)
    lower = np.floor(inside).astype(np.int64)
    upper = np.minimum(lower + 1, size - 1)
    fraction = inside - lower
    weights = np.stack([1 - fraction, fraction]) * counts_
    return np.stack([lower, upper]), weights.astype(np.float32)


def _weighted(image: Array, rows: tuple[Array, Array], columns: tuple[Array, Array], mode: str) -> Array:
    """Every sample; for the maximum the largest of its four weighted corners, as ONNX has it."""
    corners = [
        image[:, rows[0][i]][:, :, columns[0][j]] * (rows[1][i][:, None] * columns[1][j])
        for i in range(2)
        for j in range(2)
    ]
    return np.maximum.reduce(corners) if mode == "max" else np.asarray(sum(corners))


@register(
    "NonMaxSuppression",
    positional=("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"),
)
class NonMaxSuppression(Layer):
    """Which boxes stay, best first, class by class: a box goes if a better one that stays overlaps it too much.

    Shapes:
        boxes (B, R, 4), scores (B, C, R)  ->  (K, 3) of (batch, class, box)
    Parameters:
        center_point_box: 0 for (y1, x1, y2, x2), any corners; 1 for (x, y, width, height).
    """

    center_point_box: int = 0

    def infer(
        self,
        boxes: TensorSpec,
        scores: Any,
        max_output_boxes_per_class: Any = 0,
        iou_threshold: Any = 0.0,
        score_threshold: Any = None,
    ) -> TensorSpec:
        check_fits(boxes.rank == 3 and boxes.shape[2] in (None, 4), "boxes", boxes.shape, "[B, R, 4]")
        if isinstance(scores, TensorSpec):
            check_fits(scores.rank == 3, "scores", scores.shape, "[B, C, R]")
        return TensorSpec((None, 3), INT64)

    def forward(
        self,
        boxes: Array,
        scores: Any,
        max_output_boxes_per_class: Any = 0,
        iou_threshold: Any = 0.0,
        score_threshold: Any = None,
    ) -> Array:
        scores = scores if isinstance(scores, np.ndarray) else np.full((1, 1, 1), scores, boxes.dtype)
        self.infer(TensorSpec(boxes.shape, boxes.dtype), TensorSpec(scores.shape, scores.dtype))
        fits = boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2]
        check_fits(fits, "scores", scores.shape, f"[{boxes.shape[0]}, C, {boxes.shape[1]}]")
        most = int(real_number(max_output_boxes_per_class, 0, "max_output_boxes_per_class"))
        overlap = real_number(iou_threshold, 0.0, "iou_threshold")
        least = real_number(score_threshold, -np.inf, "score_threshold")
        found = [
            (batch, label, box)
            for batch in range(len(boxes))
            for label in range(scores.shape[1])
            for box in _kept(self._corners(boxes[batch]), widened(scores[batch, label]), most, overlap, least)
        ]
        return np.array(found, np.int64).reshape(-1, 3)

    def _corners(self, boxes: Array) -> Array:
        x = widened(boxes)
        if self.center_point_box:
            half = x[:, 2:] / 2
            return np.concatenate([x[:, :2] - half, x[:, :2] + half], axis=1)
        return np.concatenate([np.minimum(x[:, :2], x[:, 2:]), np.maximum(x[:, :2], x[:, 2:])], axis=1)


def _kept(boxes: Array, scores: Array, most: int, overlap: float, least: float) -> list[int]:
    """The boxes of one class that stay, best first."""
    areas = np.maximum(boxes[:, 2:] - boxes[:, :2], 0).prod(axis=1)
    rest = np.argsort(-scores, kind="stable")
    rest = rest[scores[rest] > least]
    kept: list[int] = []
    with np.errstate(all="ignore"):
        while len(rest) and len(kept) < most:
            check_wanted()
            best, rest = rest[0], rest[1:]
            kept.append(int(best))
            extents = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2])
            shared = np.maximum(extents, 0).prod(axis=1)
            union = areas[best] + areas[rest] - shared
            rest = rest[~((shared > 0) & (shared / union > overlap))]
    return kept
