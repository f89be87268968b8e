"""A request to a model on its way: what is to be run, what was made of it, and what came out. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from app.images.placement import Placement
from app.models.statistics import Timing
from app.scheduling.job import DEFAULT_PRIORITY
from app.signature import Inputs, Signature
from app.tasks.task import Finding

# Requests that are longer are decoded in threads.
LIGHT_BYTES: Final = 1 << 13
# The same of those whose values are taken as they lie, or copied at worst.
PLAIN_BYTES: Final = 1 << 20


class InferRequest(NamedTuple):
    """What is to be run, independent of how it was sent.

    outputs: names of the raw outputs wanted, True for all, False for none, None for what is usual: all for tensors,
    none for pictures.
    draw: whether the predictions are wanted as a picture as well.
    predict: whether predictions are wanted at all.
    priority: of those that wait the lowest is run first.
    is_light: whether decoding takes no time: it is short, and cannot become large, or is taken as it lies.
    is_binary: whether outputs are answered as they lie, so that many of them take no more time than few.
    """

    decode: Callable[[Signature], Inputs]
    parameters: Mapping[str, Any]
    outputs: tuple[str, ...] | bool | None = None
    draw: bool = False
    predict: bool = True
    priority: int = DEFAULT_PRIORITY
    is_light: bool = False
    is_binary: bool = False


class Decoded(NamedTuple):
    """The inputs of a request, and how long it took to make them."""

    inputs: Inputs
    seconds: float


class InferResult(NamedTuple):
    """What came out: the raw outputs asked for, what was found for each item, and where the time went.

    drawing: the PNG, where it was asked for.
    batch, is_first: as ``Ran`` has them.
    """

    outputs: dict[str, NDArray[Any]]
    predictions: Sequence[Finding] | None
    items: int
    timing: Timing
    drawing: bytes | None = None
    batch: int = 1
    is_first: bool = True


@dataclass(slots=True, kw_only=True)
class Prepared:
    """A request whose tensors are ready to run.

    inputs: what was sent, to draw on it.
    tensors: by name; what of the answer does not depend on the request itself follows from them.
    placements: where its pictures lie on the canvas; empty for tensors.
    options: the task's, with the request's parameters.
    wanted: names of the raw outputs to answer with; None for what is usual.
    timing: what was done so far.
    key: what its outputs are to be kept by; None where they are not to be.
    request_id: names the request in the log.
    """

    request: InferRequest
    inputs: Inputs
    tensors: dict[str, NDArray[Any]]
    placements: tuple[Placement, ...]
    options: Any
    wanted: tuple[str, ...] | None
    timing: Timing
    key: bytes | None = None
    request_id: str = "-"

    @property
    def items(self) -> int:
        """Pictures, or rows of the batch."""
        return len(self.placements) or batch_of(self.tensors.values())


class Ran(NamedTuple):
    """What a run gave: every raw output by name, and how long it took.

    batch: items that were run together.
    is_first: whether it stands for the run, of all requests that shared it.
    """

    outputs: dict[str, NDArray[Any]]
    infer_s: float
    batch: int
    is_first: bool = True


def batch_of(arrays: Iterable[Any]) -> int:
    """Items in a batch: the first dimension of the first array, 1 for a scalar."""
    first = next(iter(arrays), None)
    return int(first.shape[0]) if first is not None and first.ndim else 1
