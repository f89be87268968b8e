"""Check that a bundle's code runs on this machine with this engine.

Code needs exactly the engine sources that compiled it, and a machine of the same level and cache sizes. Measured rates
are not compared: measuring needs the compiler, and results vary with the load of the machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.bundle import MANIFEST, HostClass, Manifest
from engine.compiler.cache.version import SOURCES
from engine.compiler.codegen.host import Host, Memory, cpu_name, describe, further_features, supports
from engine.compiler.measuring.caches import find_caches
from engine.errors import BundleError, CompileError

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
