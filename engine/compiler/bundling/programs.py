"""Programs in the bundle of a graph."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.bundle import Bundle
from engine.compiler.bundling.admission import host_of
from engine.compiler.cache import entry
from engine.compiler.cache.fingerprint import graph_digest, program_key
from engine.compiler.cache.version import SOURCES
from engine.compiler.executable import Executable
from engine.errors import BundleError
from engine.graph import RuntimeGraph
from engine.options import Options
from engine.tensor import TensorSpec

_log = logging.getLogger("pnnx_serve.engine")


class BundledPrograms:
    """Programs of a graph's bundle.

    Attributes:
        host: the host they were compiled for.
    """

    def __init__(self, graph: RuntimeGraph, bundle: Bundle, options: Options) -> None:
        self.host = host_of(bundle.manifest.host)
        self._graph = graph
        self._bundle = bundle
        self._options = options
        self._digest: bytes | None = None
        self._keys = frozenset(each.key for each in bundle.manifest.programs)

    def holds(self, specs: Sequence[TensorSpec]) -> bool:
        """Return whether there is a program for inputs of these shapes."""
        return bool(self._keys) and self.key(specs) in self._keys

    def load(self, specs: Sequence[TensorSpec]) -> tuple[Executable, int] | None:
        """Return the program for inputs of these shapes and the size of its file; None if there is none.

        Raises:
            BundleError: its file was changed or is not a program.
        """
        try:
            return self._load(self.key(specs))
        except BundleError as error:  # logged because the reference answers instead, and the error may be swallowed
            _log.warning("a program of a bundle is not run: %s", error)
            raise

    def _load(self, key: str) -> tuple[Executable, int] | None:
        content = self._bundle.program(key)
        if content is None:
            return None
        try:
            return entry.parse(content, key, is_known=True), content.size
        except entry.EntryError as error:
            raise BundleError("not a program", where=f"{key}.blueprint", found=str(error)) from None

    def key(self, specs: Sequence[TensorSpec]) -> str:
        """Return the key of a program: a hash of the graph, the options and the host class of the bundle."""
        if self._digest is None:
            self._digest = graph_digest(self._graph, self._bundle.place_of)
        passes_off = ", ".join(sorted(self._options.passes_off))
        options = (self._bundle.manifest.host.key, f"winograd {self._options.winograd}", f"passes off {passes_off}")
        generator, precision = f"bundle of sources {SOURCES}", f"precision {self._options.precision}"
        return program_key(self._graph, self._digest, specs, *options, precision, generator=generator)
