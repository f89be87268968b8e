"""tensor: the outputs speak for themselves."""

from __future__ import annotations

from collections.abc import Sequence

from app.images.placement import Placement
from app.schema import Section
from app.tasks.task import Outputs, Task


class TensorTask(Task[Section]):
    """Predicts nothing; the answer is the outputs."""

    NAME = "tensor"
    CONFIG = Section
    EXAMPLE = {"outputs": {"out0": {"shape": [1, 3], "dtype": "float32", "data": [0.5, 1.0, "NaN"]}}}

    def predict(self, outputs: Outputs, placements: Sequence[Placement], options: Section) -> None:
        """None."""
        return None
