"""What a model answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result(Mapping[str, NDArray[Any]]):
    """The outputs by name; it is a mapping of them.

    Args:
        model: which one ran.
        version: which of its versions.
        outputs: read-only arrays, over the bytes that came where those lie well.
        predictions: what the model's task makes of the outputs; None where that was not asked for. Of one item a list
            of labels or boxes, an object of areas, or a picture; of several a list of that.
        timing: milliseconds by stage; empty without predictions, because the protocol has no place for it.
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
