"""Data of a request to a model at each step: request, prepared tensors, outputs, result. Independent of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from app.errors import InputMismatchError
from app.messages import cut, quoted
from app.models.sequences import SequenceStep, Turn
from app.models.statistics import Timing
from app.scheduling.job import DEFAULT_PRIORITY
from app.signature import Inputs, Signature
from app.tasks.task import Finding

# Longer requests are decoded in threads.
LIGHT_BYTES: Final = 1 << 13
# The same for requests whose values are used in place, or copied at most.
PLAIN_BYTES: Final = 1 << 20


class InferRequest(NamedTuple):
    """Request to a model, independent of how it was sent.

    Attributes:
        decode: returns the inputs for a signature.
        parameters: parameters of the task.
        outputs: names of requested raw outputs, True for all, False for none, None for the default: all for tensors,
            none for other contents.
        draw: whether a drawing of the predictions is requested.
        predict: whether predictions are requested.
        priority: requests of the lowest number run first.
        is_light: whether decoding is cheap: the request is short and cannot expand, or is used in place.
        is_binary: whether outputs are answered as raw bytes, which is cheap for any size.
        sequence: place of the request in a sequence, or None.
        turn: states of the sequence while the request runs, or None.
    """

    decode: Callable[[Signature], Inputs]
    parameters: Mapping[str, Any]
    outputs: tuple[str, ...] | bool | None = None
    draw: bool = False
    predict: bool = True
    priority: int = DEFAULT_PRIORITY
    is_light: bool = False
    is_binary: bool = False
    sequence: SequenceStep | None = None
    turn: Turn | None = None


class Decoded(NamedTuple):
    """Inputs of a request, and the time taken to decode them."""

    inputs: Inputs
    seconds: float


class InferResult(NamedTuple):
    """Result of a request: requested raw outputs, predictions by item, and timing.

    Attributes:
        drawing: the PNG, if requested.
        batch, is_first: see ``Ran``.
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
    """Request whose tensors are ready to run.

    Attributes:
        inputs: inputs as sent, to draw on.
        tensors: inputs of the network by name.
        contents: for each row, what it is; empty for tensors; see ``ContentRun``.
        options: the task's options with the request's parameters.
        wanted: names of requested raw outputs; None for the default.
        timing: time taken so far.
        key: key in the response cache, or None.
        indices: for each row, the position of its picture, text or sound in the request.
        rest: further runs of the request, for contents of other lengths.
        request_id: name of the request in the log.
    """

    request: InferRequest
    inputs: Inputs
    tensors: dict[str, NDArray[Any]]
    options: Any
    wanted: tuple[str, ...] | None
    timing: Timing
    key: bytes | None = None
    request_id: str = "-"
    contents: tuple[Any, ...] = ()
    indices: tuple[int, ...] = ()
    rest: tuple[Prepared, ...] = ()

    @property
    def items(self) -> int:
        """Return the number of rows of this run."""
        return len(self.contents) or batch_of(self.tensors.values())


class Ran(NamedTuple):
    """Outputs of a run by name, and its time.

    Attributes:
        batch: number of items run together.
        is_first: True for one of the requests that shared the run, so that the run is counted once.
        rest: results of the further runs of the request.
    """

    outputs: dict[str, NDArray[Any]]
    infer_s: float
    batch: int
    is_first: bool = True
    rest: tuple[Ran, ...] = ()


def requested_outputs(signature: Signature, outputs: tuple[str, ...] | bool | None) -> tuple[str, ...] | None:
    """Return the names of requested raw outputs as the request spells them; None for the default.

    Raises:
        InputMismatchError: the model has no such output, or one is named twice, by its name and an alias.
    """
    if outputs is None:
        return None
    names = signature.output_names
    if isinstance(outputs, bool):
        return names if outputs else ()
    seen: set[str] = set()
    for name in outputs:
        port = signature.output(name)
        if port is not None and port.name in seen:
            raise InputMismatchError(f"output '{port.name}': found twice, expected once", found=name)
        if port is not None:
            seen.add(port.name)
        else:
            raise InputMismatchError(
                f"unknown output: found '{cut(name)}', expected one of {quoted(names)}",
                found=name,
                expected=list(names),
            )
    return outputs


def batch_of(arrays: Iterable[Any]) -> int:
    """Return the number of items: the first dimension of the first array, 1 for a scalar."""
    first = next(iter(arrays), None)
    return int(first.shape[0]) if first is not None and first.ndim else 1
