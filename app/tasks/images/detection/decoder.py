"""Base class of decoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.images.placement import Placement
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs, Prediction, TaskContext


class Decoder(ABC):
    """Output layout of one detector family.

    Class attributes:
        OUTPUTS: config keys that name the outputs it reads.
    """

    OUTPUTS: tuple[str, ...] = ("output",)

    def completed(self, config: DetectionConfig) -> DetectionConfig:
        """Return the config with the decoder's defaults."""
        return config

    @abstractmethod
    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], config: DetectionConfig, context: TaskContext
    ) -> list[list[Prediction]]:
        """Return the predictions of each item.

        Args:
            outputs: outputs of the network by name.
            placements: for each item, the position of its picture on the network's canvas.
            config: config of the task.
            context: properties of the model.

        Raises:
            ConfigError: an output does not have the shape that the decoder expects.
        """
