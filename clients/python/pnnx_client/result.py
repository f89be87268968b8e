"""Answer of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result(Mapping[str, NDArray[Any]]):
    """Mapping of output arrays by name, with predictions.

    Args:
        model: name of the model that ran.
        version: number of its version.
        outputs: read-only arrays, without a copy where the received bytes are aligned.
        predictions: result of the model's task, or None if not requested. For one item a list of labels or boxes, an
            object of areas, or an image; for several items a list of these.
        timing: milliseconds by stage; empty without predictions, since V2 does not transfer it.
    """

    model: str
    version: int
    outputs: Mapping[str, NDArray[Any]]
    predictions: Any = None
    timing: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)
