"""Which model, and which of its versions, a request of the protocol means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.errors import ModelNotReadyError, VersionNotFoundError
from app.models.keeping.store import Store
from app.models.keeping.version import Entry, Version
from app.models.model import Model
from app.protocol.v2.figures import model_stats


def find(store: Store, name: str | None, number: int | str | None) -> tuple[Entry, Version, Model]:
    """The model of that name, in a version that is ready.

    Raises:
        ModelNotFoundError, VersionNotFoundError: there is none.
        ModelNotReadyError: it is loading, or has failed to.
    """
    entry = store.entry(name)
    version = store.version(entry.name, number)
    if version.model is None:  # Store.version returns those that are ready
        raise ModelNotReadyError(f"model '{entry.name}' is not loaded", retry_after_s=1)
    return entry, version, version.model


def statistics(store: Store, name: str | None, number: int | str | None) -> Sequence[dict[str, Any]]:
    """Those of a model's versions, of the one that is named, or without a name of all models.

    Raises:
        ModelNotFoundError, VersionNotFoundError: there is none.
    """
    entries = store.entries if name is None else (store.entry(name),)
    if isinstance(number, str):
        number = entries[0].number_of(number)
    tell = store.tallies.read()
    rows = [
        model_stats(entry, each, tell(each).statistics)
        for entry in entries
        for each in entry.versions
        if number in (None, each.number)
    ]
    if name is not None and number is not None and not rows:
        raise VersionNotFoundError(f"model '{entries[0].name}' has no version {number}")
    return rows
