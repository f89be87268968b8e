"""What a run returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.graph.running.watch import Watch
from engine.tensor import Array


class Outputs(list[Array]):
    """The outputs of a run, in graph order.

    Args:
        arrays: the output tensors.
        names: as the graph's ports have them.
        profile: one entry an operator in execution order, with its time in µs; None unless asked for.
        kernels: one entry a kernel of machine code in the order they ran; empty unless profiled.
        taps: value of every tapped operand by name.
        peak_bytes: bytes of intermediate values alive at once; None unless the run was profiled.
        buffers: one entry a piece of memory that held values, of a profiled run that was not split: where it began, its
            bytes, the operands in it, and the first and last of the kernels (of the profile's entries, where the
            reference ran) between which it was somebody's.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        names: Sequence[str],
        profile: list[dict[str, Any]] | None = None,
        taps: Mapping[str, Any] | None = None,
        peak_bytes: int | None = None,
    ) -> None:
        super().__init__(arrays)
        self.names = tuple(names)
        self.profile = profile
        self.kernels: list[dict[str, Any]] = []
        self.taps = dict(taps or {})
        self.peak_bytes = peak_bytes
        self.buffers: list[dict[str, Any]] = []

    def asdict(self) -> dict[str, Array]:
        """The outputs by name."""
        return dict(zip(self.names, self, strict=True))


def join_taps(watches: Sequence[Watch], taps: Sequence[str]) -> dict[str, Any]:
    """Values of the tapped operands; a list of them, one a part, where the batch was split."""
    if len(watches) == 1:
        return watches[0].taps
    return {name: [watch.taps[name] for watch in watches] for name in taps}
