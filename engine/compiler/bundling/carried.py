"""The programs that a graph's bundle carries."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.bundle import Bundle
from engine.compiler.bundling.admission import host_of
from engine.compiler.cache import entry
from engine.compiler.cache.fingerprint import carried_digest, program_key
from engine.compiler.cache.version import SOURCES
from engine.compiler.executable import Executable
from engine.errors import BundleError
from engine.graph import RuntimeGraph
from engine.options import Options
from engine.tensor import TensorSpec

_log = logging.getLogger("pnnx_serve.engine")


class Carried:
    """Finds programs of a graph in its bundle.

    Attributes:
        host: they are for.
    """

    def __init__(self, graph: RuntimeGraph, bundle: Bundle, options: Options) -> None:
        self.host = host_of(bundle.manifest.host)
        self._graph = graph
        self._bundle = bundle
        self._options = options
        self._digest: bytes | None = None
        self._keys = frozenset(each.key for each in bundle.manifest.programs)

    def holds(self, specs: Sequence[TensorSpec]) -> bool:
        """Whether there is a program for inputs of these shapes."""
        return bool(self._keys) and self.key(specs) in self._keys

    def load(self, specs: Sequence[TensorSpec]) -> tuple[Executable, int] | None:
        """The program for inputs of these shapes and the size of its file; None where there is none.

        Raises:
            BundleError: its file is not what it was, or no program.
        """
        try:
            return self._load(self.key(specs))
        except BundleError as error:  # which may be all that is seen of it: the reference answers
            _log.warning("a program of a bundle is not run: %s", error)
            raise

    def _load(self, key: str) -> tuple[Executable, int] | None:
        content = self._bundle.program(key)
        if content is None:
            return None
        try:
            return entry.parse(content, key, is_known=True), content.size
        except entry.EntryError as error:
            raise BundleError("it is no program", where=f"{key}.blueprint", found=str(error)) from None

    def key(self, specs: Sequence[TensorSpec]) -> str:
        """The name of a program: all that it depends on and that travels with it."""
        if self._digest is None:
            self._digest = carried_digest(self._graph, self._bundle.place_of)
        passes_off = ", ".join(sorted(self._options.passes_off))
        told = (self._bundle.manifest.host.key, f"winograd {self._options.winograd}", f"passes off {passes_off}")
        generator = f"bundle of sources {SOURCES}"
        return program_key(self._graph, self._digest, specs, *told, generator=generator)
