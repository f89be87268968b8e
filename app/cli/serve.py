"""``pnnx-serve serve``: the server, which answers probes before it is imported."""

from __future__ import annotations

import argparse
from importlib import import_module

from app.process.porch import porch
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until told to stop."""
    with porch(settings) as entrance:
        server = import_module("app.process.server")  # most of a start's time
        return int(server.serve(settings, entrance))
