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


# Size of the canvas and of the picture on it: a letterbox with bands at the top and bottom.
CANVAS = (160, 96)
PICTURE = (320, 160)
CLASSES = 5
COUNTS = (0, 3, 60)


def yolo_rows(objects: int, *, objectness: bool, more: int = 0) -> np.ndarray:
    """Return rows (anchors, 4 + 1 + classes + more) with clusters of boxes around a number of objects."""
    anchors = 315
    rows = np.zeros((anchors, 4 + objectness + CLASSES + more), np.float32)
    rows[:, :2], rows[:, 2:4] = RNG.uniform(0, CANVAS, (anchors, 2)), RNG.uniform(5, 60, (anchors, 2))
    rows[:, 4 : 4 + objectness + CLASSES] = RNG.uniform(0, 0.2, (anchors, objectness + CLASSES))
    for number in range(objects):
        near = RNG.choice(anchors, 5, replace=False)
        rows[near, :4] = RNG.uniform((20, 20, 10, 10), (140, 80, 70, 50)) + RNG.normal(0, 2, (5, 4))
        rows[near, 4 + objectness + number % CLASSES] = RNG.uniform(0.3, 0.99, 5)
        rows[near, 4 : 4 + objectness] = RNG.uniform(0.6, 0.99, (5, int(objectness)))
    return rows


def letterboxed(boxes: Any) -> Any:
    """Return boxes on the canvas in pixels of the picture, by Ultralytics' function."""
    from ultralytics.utils import ops

    return ops.scale_boxes(CANVAS[::-1], boxes, PICTURE[::-1])


def yolov8() -> dict[str, Any]:
    """Needs ultralytics: boxes, masks and key points of non_max_suppression and the predictors' functions."""
    import torch
    from ultralytics.utils import ops
    from ultralytics.utils.nms import non_max_suppression

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        masks, points = 4, 3 * 3
        rows = yolo_rows(objects, objectness=False, more=masks + points)
        rows[:, -points:] = RNG.uniform(-10, 170, (len(rows), points))
        prototypes = np.kron(RNG.normal(size=(masks, 6, 10)), np.ones((4, 4))).astype(np.float32)
        rows[:, -masks - points : -points] = RNG.normal(size=(len(rows), masks))
        kept = non_max_suppression(torch.tensor(rows.T[None]), 0.25, 0.45, nc=CLASSES)[0]
        coefficients, keypoints = kept[:, 6 : 6 + masks], kept[:, 6 + masks :].reshape(-1, 3, 3)
        boxes = letterboxed(kept[:, :4].clone())
        native = ops.process_mask_native(torch.tensor(prototypes), coefficients, boxes, PICTURE[::-1])
        found |= {
            f"rows{number}": rows,
            f"prototypes{number}": prototypes,
            f"boxes{number}": boxes,
            f"scores{number}": kept[:, 4],
            f"classes{number}": kept[:, 5],
            f"masks{number}": np.packbits(native.numpy().astype(bool)),
            f"keypoints{number}": ops.scale_coords(CANVAS[::-1], keypoints.clone(), PICTURE[::-1]),
        }
    return found


def yolov5() -> dict[str, Any]:
    """Needs a clone of ultralytics/yolov5 on the path: boxes and masks of non_max_suppression and process_mask_native.

    The file was recorded with TorchNMS of Ultralytics as torchvision's nms.
    """
    import torch
    from utils.general import non_max_suppression, scale_boxes
    from utils.segment.general import process_mask_native

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        rows = yolo_rows(objects, objectness=True, more=4)
        prototypes = np.kron(RNG.normal(size=(4, 6, 10)), np.ones((4, 4))).astype(np.float32)
        rows[:, -4:] = RNG.normal(size=(len(rows), 4))
        kept = non_max_suppression(torch.tensor(rows[None]), 0.25, 0.45, max_det=1000, nm=4)[0]
        boxes = scale_boxes(CANVAS[::-1], kept[:, :4].clone(), PICTURE[::-1])
        found |= {f"rows{number}": rows, f"prototypes{number}": prototypes, f"boxes{number}": boxes}
        found |= {f"scores{number}": kept[:, 4], f"classes{number}": kept[:, 5]}
        masks = np.zeros((0, *PICTURE[::-1]), bool)
        if len(kept):
            masks = process_mask_native(torch.tensor(prototypes), kept[:, 6:], boxes, PICTURE[::-1]).numpy() > 0.5
        found[f"masks{number}"] = np.packbits(masks)
    return found


def yolov10() -> dict[str, Any]:
    """Needs ultralytics: boxes, masks and key points of an end-to-end network; non_max_suppression only filters."""
    import torch
    from ultralytics.utils import ops
    from ultralytics.utils.nms import non_max_suppression

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        masks, points = 4, 3 * 3
        rows = np.zeros((100, 6 + masks + points), np.float32)
        rows[:, :2] = RNG.uniform((0, 10), (120, 70), (100, 2))  # not in the bands
        rows[:, 2:4] = rows[:, :2] + RNG.uniform(5, 40, (100, 2))
        rows[:, 4] = -np.sort(-np.where(np.arange(100) < objects, RNG.uniform(0.3, 1, 100), RNG.uniform(0, 0.2, 100)))
        rows[:, 5] = RNG.integers(CLASSES, size=100)
        rows[:, 6 : 6 + masks] = RNG.normal(size=(100, masks))
        rows[:, -points:] = RNG.uniform(-10, 170, (100, points))
        prototypes = np.kron(RNG.normal(size=(masks, 6, 10)), np.ones((4, 4))).astype(np.float32)
        kept = non_max_suppression(torch.tensor(rows[None]), 0.25, 0.45, nc=CLASSES, end2end=True)[0]
        boxes = letterboxed(kept[:, :4].clone())
        native = ops.process_mask_native(torch.tensor(prototypes), kept[:, 6 : 6 + masks], boxes, PICTURE[::-1])
        keypoints = kept[:, 6 + masks :].reshape(-1, 3, 3)
        found |= {f"rows{number}": rows, f"prototypes{number}": prototypes, f"boxes{number}": boxes}
        found |= {f"scores{number}": kept[:, 4], f"classes{number}": kept[:, 5]}
        found[f"masks{number}"] = np.packbits(native.numpy().astype(bool))
        found[f"keypoints{number}"] = ops.scale_coords(CANVAS[::-1], keypoints.clone(), PICTURE[::-1])
    return found


def obb() -> dict[str, Any]:
    """Needs ultralytics: rotated boxes of non_max_suppression, as OBBPredictor and Results make polygons of them."""
    import torch
    from ultralytics.utils import ops
    from ultralytics.utils.nms import non_max_suppression

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        rows = yolo_rows(objects, objectness=False, more=1)
        rows[:, -1] = RNG.uniform(-np.pi / 4, 3 * np.pi / 4, len(rows))
        kept = non_max_suppression(torch.tensor(rows.T[None]), 0.25, 0.45, max_det=1000, nc=CLASSES, rotated=True)[0]
        boxes = ops.regularize_rboxes(torch.cat([kept[:, :4], kept[:, -1:]], dim=-1))
        boxes[:, :4] = ops.scale_boxes(CANVAS[::-1], boxes[:, :4], PICTURE[::-1], xywh=True)
        found |= {f"rows{number}": rows, f"polygons{number}": ops.xywhr2xyxyxyxy(boxes)}
        found |= {f"scores{number}": kept[:, 4], f"classes{number}": kept[:, 5]}
    return found


def yolox() -> dict[str, Any]:
    """Needs a clone of Megvii-BaseDetection/YOLOX on the path: demo_postprocess, then postprocess.

    The file was recorded with TorchNMS of Ultralytics as torchvision's nms.
    """
    import torch
    from yolox.utils.boxes import postprocess
    from yolox.utils.demo_utils import demo_postprocess

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        rows = yolo_rows(objects, objectness=True)
        grids = demo_postprocess(np.zeros((1, *rows.shape)), CANVAS[::-1])[0]  # corners and strides
        rows[:, :2], rows[:, 2:4] = (rows[:, :2] - grids[:, :2]) / grids[:, 2:4], np.log(rows[:, 2:4] / grids[:, 2:4])
        decoded = torch.tensor(demo_postprocess(rows[None].copy(), CANVAS[::-1]).astype(np.float32))
        kept = postprocess(decoded, CLASSES, 0.25, 0.45)[0]
        kept = np.zeros((0, 7)) if kept is None else kept.numpy()
        scores = kept[:, 4] * kept[:, 5]
        found |= {f"rows{number}": rows, f"boxes{number}": kept[:, :4], f"scores{number}": scores}
        found[f"classes{number}"] = kept[:, 6]
    return found


def centernet() -> dict[str, Any]:
    """Needs a clone of xingyizhou/CenterNet, with src/lib on the path: ctdet_decode, before the threshold."""
    import torch
    from models.decode import ctdet_decode

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        heat = RNG.normal(-6, 0.5, (1, CLASSES, CANVAS[1] // 4, CANVAS[0] // 4)).astype(np.float32)
        for _ in range(objects):
            _, channel, row, column = (int(RNG.integers(side)) for side in heat.shape)
            heat[0, channel, row, column] = RNG.normal(1, 1)
            heat[0, channel, row, column - 1] = heat[0, channel, row, column] - 0.3
        sizes = RNG.uniform(1, 20, (1, 2, *heat.shape[2:])).astype(np.float32)
        offsets = RNG.uniform(0, 1, sizes.shape).astype(np.float32)
        kept = ctdet_decode(*map(torch.tensor, (1 / (1 + np.exp(-heat)), sizes, offsets)), K=100)[0].numpy()
        kept = kept[kept[:, 4] >= 0.3]
        found |= {f"heat{number}": heat, f"sizes{number}": sizes, f"offsets{number}": offsets}
        found |= {f"boxes{number}": 4 * kept[:, :4], f"scores{number}": kept[:, 4], f"classes{number}": kept[:, 5]}
    return found


def transformer_outputs(objects: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits (1, 100, classes) with a number of clear objects, and boxes (1, 100, 4)."""
    logits = RNG.normal(-5, 1, (1, 100, classes)).astype(np.float32)
    for query in RNG.choice(100, objects, replace=False):
        logits[0, query, int(RNG.integers(CLASSES))] = RNG.uniform(0, 6)
    boxes = np.concatenate([RNG.uniform(0.1, 0.9, (1, 100, 2)), RNG.uniform(0.05, 0.4, (1, 100, 2))], axis=2)
    return logits, boxes.astype(np.float32)


def post_processed(processor: Any, logits: np.ndarray, boxes: np.ndarray) -> dict[str, Any]:
    """Return boxes, scores and labels of transformers for a picture, in its order."""
    from types import SimpleNamespace

    import torch

    outputs = SimpleNamespace(logits=torch.tensor(logits), pred_boxes=torch.tensor(boxes))
    sizes = torch.tensor([PICTURE[::-1]])
    found = processor.post_process_object_detection(outputs, threshold=0.3, target_sizes=sizes)[0]
    return {"boxes": found["boxes"], "scores": found["scores"], "classes": found["labels"]}


def detr() -> dict[str, Any]:
    """Needs transformers: post_process_object_detection of DETR, whose last class is no object."""
    from transformers.models.detr.image_processing_detr import DetrImageProcessor

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        logits, boxes = transformer_outputs(objects, CLASSES + 1)
        logits[..., -1] = 2
        answer = post_processed(DetrImageProcessor(), logits, boxes)
        found |= {f"logits{number}": logits, f"raw{number}": boxes}
        found |= {f"{key}{number}": value for key, value in answer.items()}
    return found


def rt_detr() -> dict[str, Any]:
    """Needs transformers: post_process_object_detection of RT-DETR."""
    from transformers.models.rt_detr.image_processing_rt_detr import RTDetrImageProcessor

    found: dict[str, Any] = {}
    for number, objects in enumerate(COUNTS):
        logits, boxes = transformer_outputs(objects, CLASSES)
        if objects:
            logits[0, :, 1:3] = RNG.uniform(-2, 3, (100, 2))  # more than there are queries
        answer = post_processed(RTDetrImageProcessor(), logits, boxes)
        found |= {f"logits{number}": logits, f"raw{number}": boxes}
        found |= {f"{key}{number}": value for key, value in answer.items()}
    return found


RECORDS: dict[str, Callable[[], dict[str, Any]]] = {
    each.__name__: each for each in (ctc, sizes, dbnet, yolov8, yolov5, yolov10, obb, yolox, centernet, detr, rt_detr)
}


if __name__ == "__main__":
    for name in sys.argv[1:] or RECORDS:
        RNG = np.random.default_rng(45)
        np.savez_compressed(HERE / f"{name}.npz", **RECORDS[name]())
