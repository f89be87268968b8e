"""Task detection: boxes in pixels of the picture sent, with label and score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image

from app.errors import ConfigError
from app.images.drawing import draw_boxes, encode_png
from app.images.placement import Placement
from app.messages import did_you_mean, quoted
from app.tasks.images.detection.config import BoxBody, DetectionConfig, ObjectBody
from app.tasks.images.detection.decoders import DECODERS
from app.tasks.task import DrawingTask, Outputs, Prediction, TaskContext


class DetectionTask(DrawingTask[DetectionConfig]):
    """Object detection with the decoder named by the config."""

    NAME = "detection"
    CONFIG = DetectionConfig
    PARAMETERS = {
        "score_threshold": "least score",
        "iou_threshold": "most overlap of two boxes of a class",
        "max_detections": "how many boxes",
    }
    FINDING = list[BoxBody]
    EXAMPLE = {"predictions": [{"label": "face", "score": 0.98, "index": 1, "box": [177.8, 84.41, 271.77, 211.33]}]}

    def __init__(self, config: DetectionConfig, context: TaskContext) -> None:
        if config.decoder not in DECODERS:
            near = did_you_mean(config.decoder, DECODERS)
            raise ConfigError(f"detection.decoder: found '{config.decoder}'{near}, expected {quoted(DECODERS)}")
        self._decoder = DECODERS[config.decoder]
        super().__init__(self._decoder.completed(config), context)
        given = {key: getattr(config, key) for key in self._decoder.OUTPUTS}
        named = {
            key: self._named_output(key, name) for key, name in given.items() if name is not None or key == "output"
        }
        self._config = self._config.model_copy(update=named)

    @property
    def finding(self) -> Any:
        """Return the type of a picture's predictions; only text and rotated boxes have polygons."""
        has_polygons = self._config.decoder == "dbnet" or self._config.rotated
        return list[BoxBody] if has_polygons else list[ObjectBody]

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: DetectionConfig
    ) -> list[list[Prediction]]:
        """Return the boxes of each item."""
        return self._decoder.predict(outputs, placements, options, self._context)

    def draw(self, finding: Sequence[Prediction], picture: Callable[[], Image.Image]) -> bytes:
        """Return the picture with boxes, labels and scores."""
        return encode_png(draw_boxes(picture(), finding))
