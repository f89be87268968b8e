"""How a Winograd convolution falls into chunks and registers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """Sizes of a chunk and of what is held in registers.

    Args:
        tiles: output tiles of a chunk.
        at_once: of them, how many are multiplied at once.
        vectors: output channels multiplied at once.
        panels: so many times ``vectors`` are a chunk's output channels.
        depth: input channels transformed and summed at a time; a multiple of the lanes.
    """

    tiles: int
    at_once: int
    vectors: int
    panels: int
    depth: int
