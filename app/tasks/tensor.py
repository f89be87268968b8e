"""tensor: the outputs speak for themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from app.images.placement import Placement
from app.tasks.task import Outputs, Prediction, TaskContext, reject_unknown


class TensorTask:
    """Predicts nothing; the answer is the outputs."""

    PARAMETERS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: TaskContext) -> None:
        del context

    def options(self, parameters: Mapping[str, Any]) -> None:
        """There are none."""
        reject_unknown(parameters, self.PARAMETERS)

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: None
    ) -> list[list[Prediction]] | None:
        """None."""
        return None
