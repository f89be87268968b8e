"""Record what the original post-processing makes of raw outputs.

    python tests/data/decoders/record.py [NAME ...]

Writes NAME.npz beside this file: raw outputs and the answers of the library that defines the decoder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RNG = np.random.default_rng(45)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (shifted / shifted.sum(axis=-1, keepdims=True)).astype(np.float32)


def ctc() -> dict[str, Any]:
    """Needs rapidocr: CTCLabelDecode of random columns, with repetitions, blanks and an item of blanks only."""
    from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode

    characters = list("abcdeÄß東京")
    logits = RNG.normal(size=(5, 40, len(characters) + 2)) * 3
    logits[:, :, 0] += 2
    logits[1, 1:20] = logits[1, :19]
    logits[2, 5:15] = logits[2, 5]
    logits[4, :, 0] += 100
    scores = softmax(logits)
    lines, _ = CTCLabelDecode(character=list(characters))(scores)
    return {"scores": scores, "characters": json.dumps(characters), "answers": json.dumps(lines)}


def sizes() -> dict[str, Any]:
    """Needs rapidocr: sizes that its preprocessing gives pictures, for text detection and text recognition."""
    from rapidocr.ch_ppocr_det.utils import DetPreProcess
    from rapidocr.ch_ppocr_rec.main import TextRecognizer

    pictures = np.array(
        [(640, 480), (900, 635), (31, 700), (1921, 1081), (1500, 37), (736, 736), (999, 1000), (20, 20)]
    )
    blank = [np.zeros((height, width, 3), np.uint8) for width, height in pictures]
    found = {
        f"{kind}_{side}": np.array([DetPreProcess(side, kind).resize(each).shape[1::-1] for each in blank])
        for kind, side in (("min", 736), ("max", 960))
    }
    recogniser = TextRecognizer.__new__(TextRecognizer)
    recogniser.rec_image_shape = (3, 48, 320)
    white, lines, batches = 255, np.array([(100, 30), (333, 47), (1000, 31), (7, 50), (801, 33)]), []
    for width, height in lines:  # alone, then together with the longest
        picture, ratios = (
            np.full((height, width, 3), white, np.uint8),
            (width / height, (lines[:, 0] / lines[:, 1]).max()),
        )
        made = [recogniser.resize_norm_img(picture, max(320 / 48, ratio)) for ratio in ratios]
        batches.append([(int((each[0, 0] == 1).sum()), each.shape[2]) for each in made])
    return {"pictures": pictures, "lines": lines, "line_sizes": np.array(batches), **found}


def dbnet() -> dict[str, Any]:
    """Needs rapidocr and opencv: boxes of DBPostProcess, sorted by TextDetector, for maps of few and many texts.

    Maps are multiples of 1/255, and stored as bytes.
    """
    import cv2
    from rapidocr.ch_ppocr_det.main import TextDetector
    from rapidocr.ch_ppocr_det.utils import DBPostProcess

    found: dict[str, Any] = {}
    cases = [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (3, 0, 0.5),
        (40, 0, 2.0),
        (90, 0, 1.37),
        (12, 6, 1.0),
        (25, 15, 1.61),
        (9, 90, 1.0),
    ]
    for number, (texts, angle, scale) in enumerate(cases):
        size = (int(RNG.integers(6, 14)) * 32, int(RNG.integers(6, 16)) * 32)  # height, width
        drawn = np.zeros(size, np.float32)
        for _ in range(texts):
            center, sides = RNG.uniform((0, 0), size[::-1]), RNG.uniform((8, 5), (size[1] / 4, 26))
            corners = cv2.boxPoints((tuple(center), tuple(sides), RNG.uniform(-angle, angle) if angle else 0.0))
            cv2.fillPoly(drawn, [corners.astype(np.int32)], float(RNG.uniform(0.4, 1)))
        blurred = cv2.GaussianBlur(drawn, (5, 5), 0)
        pixels = np.rint(255 * np.clip(blurred + (blurred > 0) * RNG.normal(0, 0.02, size), 0, 1)).astype(np.uint8)
        dilation, picture = number % 2 == 0, np.rint(np.multiply(size, scale)).astype(int)
        decode = DBPostProcess(thresh=0.3, box_thresh=0.5, unclip_ratio=1.6, use_dilation=dilation)
        boxes, scores = decode(pixels[None, None].astype(np.float32) / 255, tuple(picture.tolist()))
        known = {tuple(box.ravel()): score for box, score in zip(boxes, scores, strict=True)}
        ordered = TextDetector.sorted_boxes(boxes)
        found |= {
            f"map{number}": pixels,
            f"picture{number}": picture[::-1],
            f"boxes{number}": np.asarray(ordered, np.int32).reshape(-1, 4, 2),
            f"scores{number}": np.array([known[tuple(box.ravel())] for box in ordered]),
        }
    return found


RECORDS: dict[str, Callable[[], dict[str, Any]]] = {"ctc": ctc, "sizes": sizes, "dbnet": dbnet}


if __name__ == "__main__":
    for name in sys.argv[1:] or RECORDS:
        np.savez_compressed(HERE / f"{name}.npz", **RECORDS[name]())
