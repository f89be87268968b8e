"""Decoder centernet: objects at the peaks of a heat map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import ConfigError
from app.tasks.images.detection.candidates import CandidateDecoder, Candidates
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class CenterNet(CandidateDecoder):
    """Heat map of logits (N, classes, h, w), sizes (N, 2, h, w), and offsets of centres (N, 2, h, w) if there are any.

    A peak is at least as high as its eight neighbours. Sizes and offsets are in pixels of the heat map.
    """

    OUTPUTS = ("scores", "boxes", "offsets")
    MULTI_LABEL = True
    SUPPRESSES = False

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Convert peaks that reach the threshold to probabilities, all others to 0; add sizes and offsets to cells."""
        heat, sizes = outputs[config.scores], outputs[config.boxes]
        items, classes, height, width = heat.shape if heat.ndim == 4 else (0, 0, 0, 0)
        offsets = None if config.offsets is None else outputs[config.offsets]
        expected = (items, 2, height, width)
        if not heat.size or sizes.shape != expected or (offsets is not None and offsets.shape != expected):
            shapes = [list(each.shape) for each in (heat, sizes, offsets) if each is not None]
            raise ConfigError(
                f"outputs of centernet: found shapes {', '.join(map(str, shapes))}, expected a heat map"
                " (N, classes, H, W), and sizes and offsets (N, 2, H, W)"
            )
        cells = np.stack(np.meshgrid(np.arange(width), np.arange(height)))
        centres = cells + (0.5 if offsets is None else offsets.astype(np.float64))
        boxes = np.concatenate([np.broadcast_to(centres, expected), sizes], axis=1).reshape(items, 4, -1)
        scale = np.divide(canvas, (width, height))
        return Candidates(
            boxes=boxes.swapaxes(1, 2) * np.tile(scale, 2),
            scores=_peaks(heat, config.score_threshold).reshape(items, classes, -1).swapaxes(1, 2),
        )


def _peaks(heat: NDArray[Any], threshold: float) -> NDArray[np.float32]:
    """Return the probabilities of peaks that reach the threshold; 0 elsewhere."""
    values = heat.astype(np.float32)
    padded = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    across = np.fmax(np.fmax(padded[..., :-2], padded[..., 1:-1]), padded[..., 2:])
    highest = np.fmax(np.fmax(across[..., :-2, :], across[..., 1:-1, :]), across[..., 2:, :])
    is_peak = (values == highest) & (values >= _logit(threshold))
    found = np.zeros_like(values)
    found[is_peak] = 1 / (1 + np.exp(-values[is_peak]))
    return found


def _logit(probability: float) -> float:
    """Return a logit that is a little lower than that of a probability, to allow for rounding."""
    return float(np.log(probability) - np.log1p(-probability) - 1e-3)
