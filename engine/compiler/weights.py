"""Packed weights of a graph that is compiled for many shapes: each once, for all of its programs."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from engine.compiler.addresses import MemorySpace, among_constants
from engine.compiler.executable import Executable, NativeStep, NativeSteps, Region, Segment
from engine.compiler.runtime.memory import aligned_bytes, allocate
from engine.compiler.storage import ALIGNMENT, Storage, View
from engine.ir.strided import empty
from engine.pnnx.graph import as_bytes
from engine.tensor import Array

_MIN_BYTES: Final = 4 << 20


class Weights:
    """Block of packed weights that grows with every shape that needs more.

    Weights are identified by their bytes and by their packing. The block does not move: what does not fit goes into a
    larger block that starts with a copy, and programs keep the block they were made with.
    """

    def __init__(self) -> None:
        self._block = np.empty(0, np.uint8)
        self._end = 0
        self._places: dict[Storage, int] = {}
        self._views: dict[bytes, View] = {}
        self._digests: dict[tuple[object, ...], tuple[weakref.ref[Array], bytes]] = {}

    def packed(self, packing: object, arrays: Sequence[Array | None], pack: Callable[[], Array]) -> View:
        """Return packed arrays as a constant.

        Args:
            packing: everything else that the result depends on, by its ``repr``.
            pack: packs the arrays, if that was not done before.
        """
        digests = [b"" if each is None else self._digest(each) for each in arrays]
        key = hashlib.sha256(repr((packing, digests)).encode()).digest()
        if key not in self._views:
            data = pack()
            flat = np.ascontiguousarray(data).reshape(-1)
            storage = Storage(empty(flat.shape, flat.dtype), MemorySpace.WEIGHT, data=flat)
            self._views[key] = View(storage, storage.meta.reshape(data.shape))
        return self._views[key]

    def lay_out(self, storages: Collection[Storage]) -> tuple[Array, dict[Storage, int]]:
        """Return the block with these weights in it, and the byte where each begins."""
        for storage in storages:
            if storage not in self._places and storage.data is not None:
                self._append(storage, storage.data.view(np.uint8))
                storage.data = None
        return self._block[: self._end], {each: self._places[each] for each in storages}

    def _append(self, storage: Storage, content: Array) -> None:
        place = -(-self._end // ALIGNMENT) * ALIGNMENT
        if place + content.size > self._block.size:
            # Untouched pages take no memory.
            larger = allocate(max(_MIN_BYTES, 4 * (place + content.size)))
            larger[: self._end] = self._block[: self._end]
            self._block = larger
        self._end = place + content.size
        self._block[place : self._end] = content
        self._places[storage] = place

    def _digest(self, array: Array) -> bytes:
        """Return the hash of an array's bytes, computed once for arrays that stay in memory."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        address = int(array.__array_interface__["data"][0])
        key = (id(root), address, array.dtype.str, *array.shape, *array.strides)
        known = self._digests.get(key)
        if known is not None and known[0]() is root:
            return known[1]
        state = hashlib.sha256(repr((array.shape, array.dtype.str)).encode())
        state.update(as_bytes(array).data)
        self._digests[key] = weakref.ref(root, lambda _: self._digests.pop(key, None)), state.digest()
        return state.digest()


def with_own_weights(executable: Executable) -> Executable:
    """Return an executable that owns all its weights, so that it can be stored."""
    if not executable.weights.size:
        return executable
    at = -(-executable.constants.nbytes // ALIGNMENT) * ALIGNMENT
    constants = aligned_bytes(at + executable.weights.nbytes)
    constants[: executable.constants.nbytes] = executable.constants
    constants[at:] = executable.weights

    def moved(step: NativeStep) -> NativeStep:
        return replace(step, arguments=tuple(among_constants(each, at) for each in step.arguments))

    def moved_region(region: Region | None) -> Region | None:
        return None if region is None else replace(region, address=among_constants(region.address, at))

    def moved_segment(segment: Segment) -> Segment:
        call = segment.call
        if call is None:
            return segment
        inputs, outputs = (tuple(map(moved_region, each)) for each in (call.inputs, call.outputs))
        return replace(segment, call=replace(call, inputs=inputs, outputs=outputs))

    steps, segments = NativeSteps.of(map(moved, executable.steps)), tuple(map(moved_segment, executable.segments))
    return replace(executable, constants=constants, weights=executable.weights[:0], steps=steps, segments=segments)
