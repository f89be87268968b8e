"""``pnnx-serve serve``: the server."""

from __future__ import annotations

import argparse

from app.process.server import serve
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until told to stop."""
    return serve(settings)
