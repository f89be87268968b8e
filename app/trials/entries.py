"""Entries of a comparison: models, versions, back ends and numbers of threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import engine
from app.codec.message import read_version
from app.errors import InvalidRequestError
from app.messages import cut
from app.models.model import Model
from app.models.registry.version import Version
from app.settings import Settings
from app.trials.candidates import Build, as_served

# Limit of one comparison.
MAX_ENTRIES: Final = 12
_ENTRY: Final = re.compile(
    r"(?P<model>[^:]+)(:(?P<version>[^:]*))?(:(?P<backend>|compiled|reference))?(:(?P<threads>\d{0,4}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Entry of a comparison.

    Args:
        name, version: of the model.
        model: serving model of that version.
        build: session options.
        is_served: whether the model is served with these options.
    """

    name: str
    version: int
    model: Model
    build: Build
    is_served: bool

    @property
    def graph(self) -> engine.RuntimeGraph:
        """Return the graph."""
        return self.model.session.graph

    def describe(self) -> dict[str, Any]:
        """Return plain data."""
        threads = None if self.build.backend == "reference" else self.build.threads
        names = {"model": self.name, "version": self.version, "backend": self.build.backend, "threads": threads}
        return {**names, "served": self.is_served}


def read_entries(
    text: str, find: Callable[[str, int | str | None], Version], settings: Settings, threads: int
) -> list[Entry]:
    """Return comma-separated entries ``MODEL[:VERSION[:BACKEND[:THREADS]]]``; omitted parts are as served.

    Args:
        text: the entries.
        find: returns the version of a name and number.
        settings: settings of the server.
        threads: number of threads that the server may use.

    Raises:
        ServiceError: an entry is invalid or unknown, or there are too many.
    """
    words = [each.strip() for each in text.split(",") if each.strip()]
    if not 1 <= len(words) <= MAX_ENTRIES:
        raise InvalidRequestError(f"entries: found {len(words)}, expected 1 to {MAX_ENTRIES}, by comma")
    return _each_once([_entry(each, find, settings, threads) for each in words])


def _entry(text: str, find: Callable[[str, int | str | None], Version], settings: Settings, threads: int) -> Entry:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise InvalidRequestError(f"entries: found '{cut(text)}', expected MODEL:VERSION:compiled or reference:THREADS")
    version = find(match["model"], read_version(match["version"] or None))
    assert version.model is not None  # Store.version returns ready versions only
    served = as_served(version.model.session, threads).build
    wanted = int(match["threads"]) if match["threads"] else served.threads
    if not 1 <= wanted <= threads:
        raise InvalidRequestError(f"entries: found {wanted} threads, expected 1 to {threads}")
    backend = match["backend"] or served.backend
    if backend == "reference":
        build = Build(backend="reference", threads=threads)
    else:
        passes = tuple(name for name in engine.PASS_NAMES if name in settings.passes_off)
        build = Build(threads=wanted, winograd=settings.winograd, passes_off=passes)
    return Entry(name=version.name, version=version.number, model=version.model, build=build, is_served=build == served)


def _each_once(entries: Sequence[Entry]) -> list[Entry]:
    return list({(each.name, each.version, each.build): each for each in entries}.values())
