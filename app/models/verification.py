"""Verification of batched runs against the reference: finds answers that differ from those of a run alone.

A debugging aid, off by default (``verify_batches``): each such run also takes the time of the reference.
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
    """Comparison of a model's runs with the reference, for many threads at once.

    Attributes:
        mismatches: number of requests whose outputs differed.

    Args:
        name: name of the model, for the log.
        graph: graph of the model.
    """

    def __init__(self, name: str, graph: engine.RuntimeGraph) -> None:
        self.mismatches = 0
        self._name = name
        self._session = engine.Session(graph, backend="reference") if graph.is_repeatable else None
        self._lock = threading.Lock()

    def check(self, prepared: Sequence[Prepared], outputs: Sequence[Tensors]) -> None:
        """Compare one run, and log an error for each request whose outputs differ.

        Items of a shared run are computed one by one, because none may depend on another request. A request that ran
        alone is
        computed as sent.

        Args:
            prepared: requests of the run.
            outputs: outputs of each request.
        """
        is_shared = len(prepared) > 1
        try:
            for request, found in zip(prepared, outputs, strict=True):
                if (difference := self._difference(request, found, is_shared)) is not None:
                    self._report(request, prepared, difference)
        except engine.RunCancelledError:  # no client waits for these answers
            return

    def _difference(self, request: Prepared, outputs: Tensors, is_shared: bool) -> str | None:
        """Return the first difference, or None."""
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
    """Yield the position, inputs and outputs of each item."""
    for at in range(request.items):
        inputs, found = (
            {name: each[at : at + 1] for name, each in tensors.items()} for tensors in (request.tensors, outputs)
        )
        yield f"item {at}, ", inputs, found


def _largest_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest absolute difference; infinity if shapes differ or a value is not finite."""
    if found.shape != expected.shape or found.dtype.kind not in "biufc":
        return np.inf
    with np.errstate(all="ignore"):
        difference = np.abs(found.astype(np.complex128) - expected.astype(np.complex128))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))
