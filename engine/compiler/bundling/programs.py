"""Programs in the bundle of a graph."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from engine.bundle import MANIFEST, Bundle, HostClass, Manifest
from engine.compiler.cache import entry
from engine.compiler.cache.fingerprint import graph_digest, program_key
from engine.compiler.cache.version import SOURCES
from engine.compiler.codegen.host import Host, Memory, cpu_name, describe, further_features, supports
from engine.compiler.executable import Executable
from engine.compiler.measuring.caches import find_caches
from engine.errors import BundleError, CompileError
from engine.graph import RuntimeGraph
from engine.options import Options
from engine.tensor import TensorSpec

# Digits of a hash shown in messages.
_SHOWN: Final = 12
_LEVELS: Final = ("avx512", "avx2", "sse", "neon")


def engine_version() -> str:
    """Return the version of the installed package; imports on demand because importlib.metadata takes 20 ms."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pnnx-serve")
    except PackageNotFoundError:
        return "0"


def class_of(level: str, *, is_portable: bool = False) -> HostClass:
    """Return the class of machines that code of a level is for.

    Args:
        is_portable: include all machines of the level, not only those with this machine's caches.
    """
    found = find_caches()
    caches = None if is_portable else (found.line, found.first, found.second, found.last)
    return HostClass(level=level, processor="any" if is_portable else _processor(), caches=caches)


def admit(manifest: Manifest) -> None:
    """Raise if a bundle is not for this engine on this machine.

    Raises:
        BundleError: with the engine or machine it is for, and the one found here.
    """
    if manifest.sources != SOURCES:
        raise BundleError(
            "the bundle was compiled by another version of the engine; compile it again",
            where=MANIFEST,
            found=f"{manifest.engine} (sources {manifest.sources[:_SHOWN]})",
            expected=f"{engine_version()} (sources {SOURCES[:_SHOWN]})",
        )
    known, own = manifest.host, class_of(_level())
    fits = supports(known.level) if known.caches is None else own.key == known.key
    if not fits:
        problem = "the bundle was compiled for another kind of machine"
        raise BundleError(problem, where=MANIFEST, found=_format(known), expected=_format(own))


def host_of(known: HostClass) -> Host:
    """Return the host that a bundle's code is for, with the facts that running it needs."""
    host = describe(known.level)
    last = known.caches[-1] if known.caches else 0
    return replace(host, memory=Memory(last_bytes=last)) if last else host


def _level() -> str:
    """Return the highest level this processor supports, or an empty string."""
    return next((level for level in _LEVELS if supports(level)), "")


def _processor() -> str:
    try:
        return cpu_name() + further_features()
    except CompileError:
        return "unknown"


def _format(host: HostClass) -> str:
    level = host.level or "an unsupported processor"
    if host.caches is None:
        return f"{level}, any processor"
    caches = ", ".join(f"{size // 1024} KiB" for size in host.caches[1:])
    return f"{level} with caches of {caches} and lines of {host.caches[0]} bytes ({host.processor})"


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
