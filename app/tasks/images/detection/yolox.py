"""Decoder yolox: box, objectness and class probabilities relative to the cells of three or four grids."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.errors import ConfigError
from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, one_output
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs

_STRIDES: Final = ((8, 16, 32), (8, 16, 32, 64))


class YoloX(CandidateDecoder):
    """Output (N, cells, 5 + classes), as exported without ``--decode_in_inference``."""

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Add the cell to each centre, and scale by the stride; sizes are logarithms."""
        rows = one_output(outputs, config, "(N, cells, 5 + classes)", least=6, axis=2)
        corners, strides = _cells(canvas, rows.shape[1], str(config.output))
        raw = rows[..., :4].astype(np.float64)
        boxes = np.concatenate([(raw[..., :2] + corners) * strides, np.exp(raw[..., 2:]) * strides], axis=2)
        return Candidates(boxes=boxes, objectness=rows[..., 4], scores=rows[..., 5:])


def _cells(canvas: tuple[int, int], count: int, output: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the corner (cells, 2) and stride (cells, 1) of each cell, row by row, from the finest grid on.

    Raises:
        ConfigError: no set of grids has as many cells.
    """
    width, height = canvas
    totals = [sum((width // stride) * (height // stride) for stride in strides) for strides in _STRIDES]
    if count not in totals:
        raise ConfigError(
            f"output '{output}': found {count} cells, expected {totals[0]} or {totals[1]} for an input of"
            f" {width}x{height}"
        )
    grids = [
        (np.stack(np.meshgrid(np.arange(width // stride), np.arange(height // stride)), axis=2).reshape(-1, 2), stride)
        for stride in _STRIDES[totals.index(count)]
    ]
    corners = np.concatenate([cells for cells, _ in grids])
    return corners, np.concatenate([np.full((len(cells), 1), stride) for cells, stride in grids])
