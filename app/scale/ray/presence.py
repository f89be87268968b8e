"""Whether a store can be read on a node, before a replica begins there.

On one machine a server that has no store yet waits for it, and says so. Behind Ray a replica that waits is one that
requests go to, or one that a deployment is waited for without end: here it fails, with the reason, and Ray tells it,
keeps the replicas that there are, and tries again.
"""

from __future__ import annotations

import socket

from app.errors import ConfigError
from app.remote.opening import open_store
from app.settings import Settings


def check_store(settings: Settings) -> None:
    """See that there is a store. Blocks.

    Raises:
        ConfigError: it is not on this node, cannot be reached, or is not what it should be. Of a store that was
            fetched before no look is needed: it serves on.
        SettingsError: the extra is not installed on this node.
    """
    keeper = open_store(settings)
    if keeper is not None:
        if not keeper.has_files:
            keeper.fetch()
        return
    folder = settings.store_folder
    if not folder.is_dir():
        raise ConfigError(
            f"node {socket.gethostname()} has no folder '{folder}': a store must be in the same place on every node, "
            "or at an address (s3://, gs://, https://)"
        )
