"""The instances of a graph, by the shapes of their inputs: made once, kept while they are used.

Making one compiles a program and takes a while. Only one is made at a time, and meanwhile those there are keep running.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from engine.compiler.instance import Instance
from engine.compiler.program import Program
from engine.errors import EngineError
from engine.tensor import TensorSpec

# Those whose shapes were not met for longest are dropped beyond this many.
MAX_INSTANCES = 8

Key = tuple[tuple[tuple[int, ...], str], ...]
Make = Callable[[Sequence[TensorSpec]], Program]
_log = logging.getLogger("pnnx_serve.engine")


class Instances:
    """Instances by shapes; many threads may ask at once.

    Args:
        make: compiles the program for inputs of some shapes.
        threads: of every instance.
    """

    def __init__(self, make: Make, threads: int) -> None:
        self._make = make
        self._threads = threads
        self._ready: OrderedDict[Key, Instance] = OrderedDict()
        self._begun: set[Key] = set()
        self._lock = threading.Lock()
        self._making = threading.Lock()

    def get(self, specs: Sequence[TensorSpec], make: Make | None = None, *, refresh: bool = False) -> Instance:
        """The instance for inputs of these shapes, made now if there is none.

        Args:
            make: used instead of the one given at the beginning.
            refresh: make a new one even if there is one.

        Raises:
            CompileError: generated code is not valid.
            EngineError: an operator does not accept these shapes.
        """
        key = _key(specs)
        found = None if refresh else self._find(key)
        if found is not None:
            return found
        with self._making:
            found = None if refresh else self._find(key)
            return found or self._keep(key, Instance((make or self._make)(specs), self._threads))

    def begin(self, specs: Sequence[TensorSpec]) -> None:
        """Let the instance for inputs of these shapes be made in the background; once, should it fail."""
        key = _key(specs)
        with self._lock:
            if key in self._ready or key in self._begun:
                return
            self._begun.add(key)
        threading.Thread(target=self._try, args=(key, list(specs)), daemon=True, name="compile").start()

    def is_ready(self, specs: Sequence[TensorSpec]) -> bool:
        """Whether a run of these shapes would find its instance."""
        with self._lock:
            return _key(specs) in self._ready

    def latest(self) -> tuple[Key, Instance] | None:
        """The instance asked for last, with shapes and dtypes of its inputs; None while there is none."""
        with self._lock:
            return next(reversed(self._ready.items()), None)

    def _try(self, key: Key, specs: Sequence[TensorSpec]) -> None:
        try:
            self.get(specs)
        except EngineError as error:
            _log.warning(
                "not compiled for %s, which runs on the reference layers: %s", ", ".join(map(str, specs)), error
            )
        else:
            with self._lock:
                self._begun.discard(key)  # it may be dropped one day, and asked for again

    def _find(self, key: Key) -> Instance | None:
        with self._lock:
            if key in self._ready:
                self._ready.move_to_end(key)
            return self._ready.get(key)

    def _keep(self, key: Key, instance: Instance) -> Instance:
        with self._lock:
            dropped = [self._ready.pop(key)] if key in self._ready else []
            self._ready[key] = instance
            while len(self._ready) > MAX_INSTANCES:
                dropped.append(self._ready.popitem(last=False)[1])
        for each in dropped:
            each.close()
        return instance


def _key(specs: Sequence[TensorSpec]) -> Key:
    return tuple((tuple(dim or 0 for dim in spec.shape), spec.dtype.str) for spec in specs)
