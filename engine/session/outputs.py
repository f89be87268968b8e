"""Outputs of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from engine.graph.running.watch import Watch
from engine.tensor import Array


class Outputs(list[Array]):
    """Outputs of a run, in graph order.

    Attributes:
        names: the names of the graph's ports.
        profile: one entry an operator in execution order, with its time in µs; None unless requested.
        kernels: one entry a kernel of machine code in the order they ran; empty unless profiled.
        taps: value of every tapped operand by name.
        peak_bytes: bytes of intermediate values alive at once; None unless the run was profiled.
        buffers: for a profiled run that was not split, one entry a region of memory that held values: its start, its
            bytes, its operands, and the first and last kernel (entry of the profile, if the reference ran) of its use.
    """

    # Most runs have only names, and a tiny network's run takes a few microseconds.
    __slots__ = ("__dict__", "names")
    names: Sequence[str]
    profile: list[dict[str, Any]] | None = None
    kernels: Sequence[dict[str, Any]] = ()
    taps: Mapping[str, Any] = MappingProxyType({})
    peak_bytes: int | None = None
    buffers: Sequence[dict[str, Any]] = ()

    def asdict(self) -> dict[str, Array]:
        """Return the outputs by name."""
        return dict(zip(self.names, self, strict=True))


def join_taps(watches: Sequence[Watch], taps: Sequence[str]) -> dict[str, Any]:
    """Return the values of the tapped operands; a list of one value a part if the batch was split."""
    if len(watches) == 1:
        return watches[0].taps
    return {name: [watch.taps[name] for watch in watches] for name in taps}
