"""``pnnx-serve serve``: the server, which answers probes before it is imported."""

from __future__ import annotations

import argparse
import gc
from importlib import import_module
from typing import Any

from app.process.early_health import early_health
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until told to stop."""
    with early_health(settings) as entrance:
        return int(_imported("app.process.server").serve(settings, entrance))


def _imported(name: str) -> Any:
    """A module. Importing makes no garbage to speak of, and looking for it takes a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if was_enabled:
            gc.enable()
