"""Table of decoders: ``decoder`` in the table [detection] to the object that implements it."""

from __future__ import annotations

from typing import Final

from app.tasks.images.detection.centernet import CenterNet
from app.tasks.images.detection.dbnet import DBNet
from app.tasks.images.detection.decoder import Decoder
from app.tasks.images.detection.detr import Detr, RtDetr
from app.tasks.images.detection.scores_boxes import ScoresBoxes
from app.tasks.images.detection.yolov5 import YoloV5
from app.tasks.images.detection.yolov8 import YoloV8
from app.tasks.images.detection.yolov10 import YoloV10
from app.tasks.images.detection.yolox import YoloX

DECODERS: Final[dict[str, Decoder]] = {
    "scores_boxes": ScoresBoxes(),
    "yolov5": YoloV5(),
    "yolov8": YoloV8(),
    "yolov10": YoloV10(),
    "yolox": YoloX(),
    "centernet": CenterNet(),
    "detr": Detr(),
    "rt_detr": RtDetr(),
    "dbnet": DBNet(),
}
