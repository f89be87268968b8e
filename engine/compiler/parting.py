"""Whether a batch is run as one, or in parts of the exported size: one after the other, or side by side.

A batch reads the weights once, but what it writes no longer fits the caches. Where images weigh more than the weights,
and a batch of them more than a cache, each is run by itself. Which cache that is depends on how fast the last one is.
Threads have more to share of a batch than of an image, unless each has images of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.compiler.blueprint import Blueprint
from engine.compiler.codegen.host import Host

# A share of the last-level cache: what a run writes beyond it is read back from memory.
FAR_SHARE: Final = 1 / 2
# How many times the weights images should be, for those to be read again from a last-level cache that is slow.
MORE_IMAGES: Final = 4 / 3
# Of the products of a run, the share that images from that cache should take.
FELT: Final = 1 / 20


@dataclass(frozen=True, slots=True)
class Parting:
    """What a program for one part says of batches.

    Args:
        plan: of the program.
        cores: that the threads of a run have, at most one each.
        limit: bytes that may be taken for memory of their own.
    """

    plan: Blueprint
    host: Host
    cores: int
    limit: int

    def is_better(self, parts: int) -> bool:
        """Whether so many parts are faster than one run of them all."""
        whole, memory = parts * self.plan.arena_bytes, self.host.memory
        if whole > FAR_SHARE * memory.last_bytes:
            return self._images > self.plan.constant_bytes / 2
        is_slow = memory.late_cost > 0 and whole > memory.second_bytes
        return is_slow and self._is_felt and (self.cores == 1 or self.side_by_side(parts) > 0)

    def side_by_side(self, parts: int) -> int:
        """How many of the parts threads run each by itself: as many as they share evenly, where that is faster.

        Each reads all weights then, which images have to outweigh, and writes to memory of its own, which the
        last-level cache has to hold for all of them.
        """
        has_room = self.cores * self.plan.arena_bytes <= min(self.limit, FAR_SHARE * self.host.memory.last_bytes)
        return parts // self.cores * self.cores if self.cores > 1 and has_room and self._is_of_images else 0

    @property
    def _images(self) -> int:
        """Bytes that a run reads and writes besides weights."""
        return int(self.plan.steps.bytes.sum()) - self.plan.constant_bytes

    @property
    def _is_of_images(self) -> bool:
        """Whether reading weights again costs little; the rows of a batch wait for a recurrent layer's steps once."""
        is_recurrent = "recurrent" in self.plan.steps.kinds
        return not is_recurrent and self._images > MORE_IMAGES * self.plan.constant_bytes

    @property
    def _is_felt(self) -> bool:
        """Whether images that come from the last-level cache are felt beside all that is computed of them."""
        products = int(self.plan.steps.flops.sum()) / (2 * self.host.lanes)
        return self._is_of_images and self._images * self.host.memory.stream_cost > FELT * products
