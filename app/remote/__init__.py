"""Remote stores: fetched from S3, Google Cloud Storage or a web server.

Fetched files are verified against a digest if there is one, stored by content, and published atomically. To the rest of
the service a remote store is a folder like any other (docs/remote-stores.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.location import Remote
from app.settings import Settings

if TYPE_CHECKING:
    from app.remote.mirror import StoreSync


def open_store(settings: Settings) -> StoreSync | None:
    """Return the synchronisation of a remote store, or None for a local folder.

    Raises:
        SettingsError: the extra is not installed.
        SourceError: there is no folder for the copy.
    """
    if not isinstance(settings.store, Remote):
        return None
    from app.remote.mirror import StoreSync

    return StoreSync(settings, settings.store)


def fetched(settings: Settings) -> Path:
    """Return the folder of the models; for a remote store, after fetching its present state.

    Raises:
        SettingsError, SourceError: see ``open_store``; or fetching failed.
    """
    store_sync = open_store(settings)
    if store_sync is not None:
        store_sync.fetch()
    return settings.store_folder
