"""Runs of several items computed again on the reference: finds answers that are not their requests'.

A debugging aid, off by default (``verify_batches``): each such run takes as much longer as the reference needs for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engine
from app.models.request import Prepared

log = logging.getLogger(__name__)

Tensors = Mapping[str, NDArray[Any]]


class Verification:
    """Compares the outputs of a model's runs with the reference's; many threads may call it at once.

    Attributes:
        mismatches: requests whose outputs differed.

    Args:
        name: of the model, for the log.
    """

    def __init__(self, name: str, graph: engine.RuntimeGraph) -> None:
        self.mismatches = 0
        self._name = name
        self._session = engine.Session(graph, backend="reference") if graph.is_repeatable else None
        self._lock = threading.Lock()

    def check(self, prepared: Sequence[Prepared], outputs: Sequence[Tensors]) -> None:
        """Compare one run, and log each request whose outputs differ as an error.

        The items of requests that shared the run are computed one by one: none may depend on another request. A request
        that ran alone is computed as it was sent.

        Args:
            outputs: of each request.
        """
        is_shared = len(prepared) > 1
        try:
            for request, found in zip(prepared, outputs, strict=True):
                if (difference := self._difference(request, found, is_shared)) is not None:
                    self._report(request, prepared, difference)
        except engine.RunCancelledError:  # no client waits for these answers
            return

    def _difference(self, request: Prepared, outputs: Tensors, is_shared: bool) -> str | None:
        """Return the first difference; None where there is none."""
        if self._session is None:
            return None
        pairs = _items(request, outputs) if is_shared else [("", request.tensors, outputs)]
        for place, inputs, found in pairs:
            try:
                expected = self._session.run(inputs).asdict()
            except engine.RunCancelledError:
                raise
            except engine.EngineError as error:
                return f"{place}the reference fails: {error}"
            for name, array in expected.items():
                if not engine.is_close(found[name], array):
                    return f"{place}output '{name}' by up to {_largest_difference(found[name], array):.3g}"
        return None

    def _report(self, request: Prepared, prepared: Sequence[Prepared], difference: str) -> None:
        with self._lock:
            self.mismatches += 1
        others = ", ".join(each.request_id for each in prepared if each is not request)
        log.error(
            "model '%s': the answer to request %s differs from the reference: %s (%s)",
            self._name,
            request.request_id,
            difference,
            f"its run was shared with requests {others}" if others else "its run was not shared",
        )


def _items(request: Prepared, outputs: Tensors) -> Iterator[tuple[str, Tensors, Tensors]]:
    """The inputs and outputs of each item, and its place in the request."""
    for at in range(request.items):
        inputs, found = (
            {name: each[at : at + 1] for name, each in tensors.items()} for tensors in (request.tensors, outputs)
        )
        yield f"item {at}, ", inputs, found


def _largest_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest difference of two arrays of numbers; infinity where one of them is not finite, or the shapes differ."""
    if found.shape != expected.shape or found.dtype.kind not in "biufc":
        return np.inf
    with np.errstate(all="ignore"):
        difference = np.abs(found.astype(np.complex128) - expected.astype(np.complex128))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))
