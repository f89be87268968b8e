"""Answers of every task as the OpenAPI document shows them, each for a picture of one pixel."""

from __future__ import annotations

from typing import Any, Final

# A picture of one grey pixel, and a mask of one pixel of class 1 whose colour is as generated.
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
_MASK: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABAQMAAAAl21bKAAAABlBMVEUAAAAA8ACx21hyAAAAAnRSTlMA/1uRIrUAAAAKSURBVHic"
    "Y2gAAACCAIF3zXK2AAAAAElFTkSuQmCC"
)

_TIMING: Final = {
    "queue_ms": 0.1, "decode_ms": 1.2, "preprocess_ms": 0.3, "infer_ms": 7.5, "postprocess_ms": 0.1, "total_ms": 9.2,
}  # fmt: skip
_FOUND: Final[dict[str, Any]] = {
    "classification": [
        {"label": "cat", "probability": 0.93, "index": 1},
        {"label": "dog", "probability": 0.06, "index": 2},
    ],
    "detection": [{"label": "face", "score": 0.98, "index": 1, "box": [177.8, 84.41, 271.77, 211.33]}],
    "segmentation": {
        "classes": [{"label": "road", "index": 1, "area": 1, "fraction": 1.0, "color": "#00f000"}],
        "mask": _MASK,
        "width": 1,
        "height": 1,
    },
    "image": {"image": PIXEL, "width": 1, "height": 1},
}

# For the key "examples" of a media type.
ANSWERS: Final[dict[str, Any]] = {
    task: {"summary": task, "value": {"model": "name", "version": 1, "predictions": found, "timing": _TIMING}}
    for task, found in _FOUND.items()
} | {
    "tensor": {
        "summary": "tensor",
        "value": {
            "model": "name",
            "version": 1,
            "outputs": {"out0": {"shape": [1, 3], "dtype": "float32", "data": [0.5, 1.0, "NaN"]}},
            "timing": _TIMING,
        },
    }
}
