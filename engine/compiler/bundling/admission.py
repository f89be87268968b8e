"""For which machine and engine a bundle is: its code runs there and nowhere else.

Code fits the sources of the engine it was made by, to the letter, and a machine by its level and its caches. Rates that
were measured are not compared: to measure takes the compiler, and a busy machine differs from itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.bundle import MANIFEST, HostClass, Manifest
from engine.compiler.cache.version import SOURCES
from engine.compiler.codegen.host import Host, Memory, cpu_name, describe, further_features, supports
from engine.compiler.measuring.caches import find_caches
from engine.errors import BundleError, CompileError

# Digits of a hash that messages show.
_SHOWN: Final = 12
_LEVELS: Final = ("avx512", "avx2", "sse", "neon")


def engine_version() -> str:
    """The version of the installed package; few want to know, and what tells takes twenty milliseconds to import."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pnnx-serve")
    except PackageNotFoundError:
        return "0"


def class_of(level: str, *, is_portable: bool = False) -> HostClass:
    """The class of machines that code of a level is for.

    Args:
        is_portable: whether that is all of the level, not only those with this machine's caches.
    """
    found = find_caches()
    caches = None if is_portable else (found.line, found.first, found.second, found.last)
    return HostClass(level=level, processor="any" if is_portable else _processor(), caches=caches)


def admit(manifest: Manifest) -> None:
    """Refuse a bundle that is not for this engine on this machine.

    Raises:
        BundleError: saying what it is for, and what is here.
    """
    if manifest.sources != SOURCES:
        raise BundleError(
            "the bundle was compiled by another engine, and has to be compiled again",
            where=MANIFEST,
            found=f"{manifest.engine} (sources {manifest.sources[:_SHOWN]})",
            expected=f"{engine_version()} (sources {SOURCES[:_SHOWN]})",
        )
    known, here = manifest.host, class_of(_level())
    fits = supports(known.level) if known.caches is None else here.key == known.key
    if not fits:
        problem = "the bundle was compiled for other machines than this one"
        raise BundleError(problem, where=MANIFEST, found=_told(known), expected=_told(here))


def host_of(known: HostClass) -> Host:
    """The host that code of a bundle is for, as far as running it needs."""
    host = describe(known.level)
    last = known.caches[-1] if known.caches else 0
    return replace(host, memory=Memory(last_bytes=last)) if last else host


def _level() -> str:
    """The highest level whose code this processor runs; empty where there is none."""
    return next((level for level in _LEVELS if supports(level)), "")


def _processor() -> str:
    try:
        return cpu_name() + further_features()
    except CompileError:
        return "unknown"


def _told(host: HostClass) -> str:
    level = host.level or "a processor that no code is generated for"
    if host.caches is None:
        return f"{level}, any processor"
    caches = ", ".join(f"{size // 1024} KiB" for size in host.caches[1:])
    return f"{level} with caches of {caches} and lines of {host.caches[0]} bytes ({host.processor})"
