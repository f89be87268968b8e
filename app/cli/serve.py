"""``pnnx-serve serve``: start the server, imported once its store is readable and its address bound."""

from __future__ import annotations

import argparse
import os

from app.location import Remote
from app.process.sockets import listen
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until told to stop."""
    check_store(settings)
    with listen(settings) as listener:
        from app.process.server import serve

        return serve(settings, listener)


def check_store(settings: Settings) -> None:
    """Check that the model folder can be listed, before the port is bound and the server imported.

    Raises:
        ConfigError: it cannot; the error is the same that reading the models would raise.
    """
    if isinstance(settings.store, Remote):
        return
    try:
        os.listdir(settings.store_folder)
    except OSError:
        from app.models.folder.repository import find_models

        find_models(settings.store_folder, settings.model_name)
