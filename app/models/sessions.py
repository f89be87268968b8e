"""Sessions of the engine as the settings want them."""

from __future__ import annotations

import os

import engine
from app.errors import ConfigError
from app.memory.machine import budget_bytes
from app.models.folder.repository import VersionFiles, waits_for_files
from app.settings import Settings


def read_graph(
    version: VersionFiles, settings: Settings, *, strict: bool = False, verify: bool = False
) -> engine.RuntimeGraph:
    """The built graph of a version; of a bundle with what was compiled of it, if the settings let its code run.

    Args:
        strict: refuse a graph that would have warnings.
        verify: whether the checksums of the weights are looked at; those of a bundle always are.

    Raises:
        ConfigError: the version's folder has no model yet, or a link leads out of the model's folder.
        BundleError: the bundle is damaged, not to be trusted, or for another machine or engine.
        EngineError: the pair is damaged, uses unknown operators or contradicts itself.
    """
    if (found := waits_for_files(version)) is not None:
        raise ConfigError(found)
    version.check_links()
    if version.bundle is not None and settings.bundles:
        return engine.load(version.bundle, strict=strict)
    return engine.load(version.param, version.bin, strict=strict, verify=verify)


def open_session(graph: engine.RuntimeGraph, settings: Settings, threads: int | None) -> engine.Session:
    """A session of a built graph.

    Args:
        threads: cores one run may use; None for all this process may use.

    Raises:
        ParameterError: the settings leave out a pass there is not.
    """
    return engine.Session(
        graph,
        backend=settings.backend,
        threads=threads,
        winograd=settings.winograd,
        passes_off=settings.passes_off,
        cache=cache_of(settings),
        cache_max_bytes=settings.cache_max_bytes,
        instances_max_bytes=budget_bytes(settings.instances_max_bytes, settings.workers),
    )


def cache_of(settings: Settings) -> str | os.PathLike[str] | None:
    """Where the engine keeps what it compiles, as ``Session`` takes it."""
    if not settings.cache:
        return None
    return "auto" if settings.cache_dir is None else settings.cache_dir
