"""Record crops at polygons, and sizes of wide pictures, as RapidOCR makes them.

pip install rapidocr onnxruntime
python tests/data/pipelines/record.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rapidocr.ch_ppocr_det.utils import DetPreProcess
from rapidocr.utils.process_img import apply_vertical_padding, get_rotate_crop_image

POLYGONS = (
    [[10, 12], [90, 12], [90, 32], [10, 32]],
    [[10, 20], [85, 5], [90, 30], [15, 45]],
    [[80, 50], [20, 60], [18, 35], [78, 25]],
    [[30, 5], [50, 5], [50, 75], [30, 75]],
    [[30.5, 10.25], [60.75, 12.5], [70, 50], [22, 48]],
    [[0, 0], [119, 0], [119, 79], [0, 79]],
)

WIDE = ((700, 36), (1672, 122), (1167, 54), (926, 51), (511, 50), (445, 39), (400, 50), (323, 430))


def sizes(width: int, height: int) -> list[int]:
    """Return the rows added above a picture, and the size of the detector's input."""
    record: dict[str, dict[str, int]] = {}
    padded, _ = apply_vertical_padding(np.zeros((height, width, 3), np.uint8), record, 8, 30)
    made = DetPreProcess(736, "min").resize(padded)
    return [record["padding_1"]["top"], made.shape[1], made.shape[0]]


def wide_canvas() -> np.ndarray:
    """Return the detector's input for a wide picture, as pixels: padding is blended into its first and last rows."""
    padded, _ = apply_vertical_padding(picture(20, 200), {}, 8, 0)
    return DetPreProcess(64, "min").resize(padded)


def picture(height: int = 80, width: int = 120) -> np.ndarray:
    """Return a smooth picture: resampling filters differ where pixels jump."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 120 * np.sin(x / 9 + y / 17), 128 + 120 * np.cos(x / 13 - y / 8), 2 * x]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


if __name__ == "__main__":
    made = (get_rotate_crop_image(picture(), np.array(each, np.float32)) for each in POLYGONS)
    crops = {f"crop{at}": crop for at, crop in enumerate(made)}
    polygons = {f"polygon{at}": np.array(each, np.float64) for at, each in enumerate(POLYGONS)}
    np.savez_compressed(
        Path(__file__).with_name("crops.npz"),
        picture=picture(),
        wide=WIDE,
        sizes=[sizes(*each) for each in WIDE],
        wide_picture=picture(20, 200),
        wide_canvas=wide_canvas(),
        **polygons,
        **crops,
    )
