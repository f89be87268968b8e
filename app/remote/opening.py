"""The way in: whoever's store is a folder of this machine loads nothing else of this room."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.location import Remote
from app.settings import Settings

if TYPE_CHECKING:
    from app.remote.keeper import Keeper


def open_store(settings: Settings) -> Keeper | None:
    """What keeps the files of a store from elsewhere current; None for a folder.

    Raises:
        SettingsError: the extra is not installed.
        SourceError: there is no folder to keep them in.
    """
    if not isinstance(settings.store, Remote):
        return None
    from app.remote.keeper import Keeper

    return Keeper(settings, settings.store)


def fetched(settings: Settings) -> Path:
    """The folder of the models, as they are elsewhere now. Blocks.

    Raises:
        SettingsError, SourceError: as above, and where they cannot be fetched.
    """
    keeper = open_store(settings)
    if keeper is not None:
        keeper.fetch()
    return settings.store_folder
