"""Engine graphs and sessions configured by the settings."""

from __future__ import annotations

import os

import engine
from app.errors import ConfigError
from app.memory.machine import budget_bytes
from app.models.folder.config import Precision
from app.models.folder.repository import VersionFiles, waits_for_files
from app.settings import Settings


def read_graph(
    version: VersionFiles, settings: Settings, *, strict: bool = False, verify: bool = False
) -> engine.RuntimeGraph:
    """Return the built graph of a version; of a bundle with its compiled code if the settings allow it.

    Args:
        version: files of the version.
        settings: settings of the server.
        strict: whether warnings are errors.
        verify: whether to verify the checksums of the weights; those of a bundle are always verified.

    Raises:
        ConfigError: the version's folder has no model yet, or a link leads out of the model's folder.
        BundleError: the bundle is damaged, untrusted, or for another machine or engine.
        EngineError: the pair is damaged, uses unknown operators or contradicts itself.
    """
    if (found := waits_for_files(version)) is not None:
        raise ConfigError(found)
    version.check_links()
    if version.bundle is not None and settings.bundles:
        return engine.load(version.bundle, strict=strict)
    return engine.load(version.param, version.bin, strict=strict, verify=verify)


def open_session(
    graph: engine.RuntimeGraph, settings: Settings, threads: int | None, precision: Precision = "float32"
) -> engine.Session:
    """Return a session of a built graph.

    Args:
        graph: built graph.
        settings: settings of the server.
        threads: cores per run; None for all that this process may use.
        precision: of products, as the model's configuration has it.

    Raises:
        ParameterError: the settings disable an unknown pass.
    """
    return engine.Session(
        graph,
        backend=settings.backend,
        threads=threads,
        winograd=settings.winograd,
        precision=precision,
        passes_off=settings.passes_off,
        cache=cache_of(settings),
        cache_max_bytes=settings.cache_max_bytes,
        instances_max_bytes=budget_bytes(settings.instances_max_bytes, settings.workers),
    )


def cache_of(settings: Settings) -> str | os.PathLike[str] | None:
    """Return the ``cache`` argument of ``Session``."""
    if not settings.cache:
        return None
    return "auto" if settings.cache_dir is None else settings.cache_dir
